/* sim_kernel_builtin: kernels that every program may name in its PTX, so that one PTX file runs here and on a
 * real GPU.
 *
 *   spin_ns(u64 ns)                                            runs for that long
 *   spin_flag(u64 address)                                     runs until the u32 there is not 0
 *   fill_u32(u64 address, u32 value, u64 count)
 *   copy_u32(u64 to, u64 from, u64 count)
 *   check_u32(u64 address, u32 expected, u64 count, u64 mismatches)   adds to the u32 at mismatches
 */
#include "tools/simgpu/engine/sim_kernel.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define POLL_NS 20000

static uint64_t u64(const void *argument)
{
    uint64_t value;

    memcpy(&value, argument, sizeof(value));
    return value;
}

static uint32_t u32(const void *argument)
{
    uint32_t value;

    memcpy(&value, argument, sizeof(value));
    return value;
}

static uint32_t *words(const void *argument)
{
    return (uint32_t *)(uintptr_t)u64(argument);
}

static void spin_ns(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    uint64_t ns = u64(args[0]);
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

    (void)grid, (void)block;
    while (nanosleep(&left, &left) != 0) /* sleep: a real GPU does not use the host's processors either */
        ;
}

static void spin_flag(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    _Atomic uint32_t *flag = (_Atomic uint32_t *)words(args[0]);
    struct timespec pause = {.tv_nsec = POLL_NS};

    (void)grid, (void)block;
    while (atomic_load_explicit(flag, memory_order_acquire) == 0)
        nanosleep(&pause, NULL);
}

static void fill_u32(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    uint32_t *to = words(args[0]), value = u32(args[1]);
    uint64_t count = u64(args[2]), i;

    (void)grid, (void)block;
    for (i = 0; i < count; i++)
        to[i] = value;
}

static void copy_u32(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    (void)grid, (void)block;
    memmove(words(args[0]), words(args[1]), u64(args[2]) * sizeof(uint32_t));
}

static void check_u32(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block)
{
    const uint32_t *at = words(args[0]);
    uint32_t expected = u32(args[1]), wrong = 0;
    uint64_t count = u64(args[2]), i;

    (void)grid, (void)block;
    for (i = 0; i < count; i++)
        wrong += at[i] != expected;
    atomic_fetch_add((_Atomic uint32_t *)words(args[3]), wrong);
}

simgpu_kernel *sim_kernel_builtin(const char *name)
{
    static const struct {
        const char *name;
        simgpu_kernel *function;
    } table[] = {
        {"spin_ns", spin_ns},   {"spin_flag", spin_flag}, {"fill_u32", fill_u32},
        {"copy_u32", copy_u32}, {"check_u32", check_u32},
    };
    size_t i;

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].function;
    return NULL;
}
