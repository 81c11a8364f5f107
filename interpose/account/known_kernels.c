/* known_kernels: see known_kernels.h. */
#include "interpose/account/known_kernels.h"

#include <stdatomic.h>
#include <stdint.h>

#define SETS_BITS  12
#define TAG_BITS   32
#define KEY_BITS   (SETS_BITS + TAG_BITS)
#define WAYS       8                /* kernels in a set: of 10,000 hardly any is forgotten */
#define ALIGNED    16               /* a handle is known only if it is a multiple of this and below 2^48 */
#define MULTIPLIER 0x9e3779b97f5ULL /* odd: so no two keys have both the same set and the same tag */

/* A set is in one line of the cache. */
_Alignas(sizeof(uint32_t) * WAYS) static _Atomic uint32_t sets[1 << SETS_BITS][WAYS]; /* tags; 0: none */
static atomic_bool stopped;

/* Returns the set of a handle and stores its tag: 0 if the handle cannot be known. */
static _Atomic uint32_t *set_of(CUfunction kernel, uint32_t *tag)
{
    const uint64_t key = (uintptr_t)kernel / ALIGNED;
    const uint64_t mixed = key * MULTIPLIER & ((1ULL << KEY_BITS) - 1);

    *tag = (uintptr_t)kernel % ALIGNED || key >> KEY_BITS ? 0 : (uint32_t)mixed;
    return sets[mixed >> TAG_BITS];
}

bool known_kernels_has(CUfunction kernel)
{
    uint32_t tag;
    _Atomic uint32_t *set = set_of(kernel, &tag);

    for (int i = 0; i < WAYS; i++) {
        if (atomic_load_explicit(&set[i], memory_order_relaxed) == tag)
            return tag != 0;
    }
    return false;
}

/* Returns the compute capability of a card, or a negative number. */
static int capability(CUdevice ordinal)
{
    int major = 0, minor = 0;

    if (driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal) !=
            CUDA_SUCCESS ||
        driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal) !=
            CUDA_SUCCESS)
        return -1;
    return major * 1000 + minor;
}

/* A CUkernel has one handle for all cards. It needs the same stack on all that run the same code. */
static bool cards_are_alike(void)
{
    int cards = 0;

    if (driver.cuDeviceGetCount(&cards) != CUDA_SUCCESS)
        return false;
    for (CUdevice i = 1; i < cards; i++) {
        const int other = capability(i);

        if (other < 0 || other != capability(0))
            return false;
    }
    return true;
}

/* In a full set the kernel that was added first is forgotten. */
void known_kernels_add(CUfunction kernel)
{
    uint32_t tag;
    _Atomic uint32_t *set = set_of(kernel, &tag);

    if (!tag || atomic_load(&stopped))
        return;
    if (!cards_are_alike()) {
        known_kernels_stop();
        return;
    }
    for (int i = 0; i < WAYS; i++)
        tag = atomic_exchange(&set[i], tag);
    if (atomic_load(&stopped)) /* since the first look */
        known_kernels_forget();
}

void known_kernels_forget(void)
{
    for (int i = 0; i < 1 << SETS_BITS; i++) {
        for (int j = 0; j < WAYS; j++)
            atomic_store_explicit(&sets[i][j], 0, memory_order_relaxed);
    }
}

void known_kernels_stop(void)
{
    atomic_store(&stopped, true);
    known_kernels_forget();
}
