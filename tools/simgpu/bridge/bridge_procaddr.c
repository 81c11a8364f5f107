/* bridge_procaddr: cuGetProcAddress finds the symbol of a name by version and by the flags for the default
 * stream. The table is generated from entries.def; there is no second list of names. Owns no lock.
 */
#include "tools/simgpu/bridge/bridge_call.h"
#include "tools/simgpu/engine/sim_device.h"

#include <stdbool.h>
#include <string.h>

struct address {
    const char *base;
    int version;
    void (*symbol)(void);
    int thread_version; /* 0: no per-thread variant */
    void (*per_thread)(void);
};

#define CODE(symbol) ((void (*)(void))symbol)

static const struct address table[] = {
#define ENTRY(base, symbol, version) {#base, version, CODE(symbol), 0, NULL},
#define ENTRY_PT(base, symbol, version, per_thread, thread_version)                                          \
    {#base, version, CODE(symbol), thread_version, CODE(per_thread)},
#define ALIAS(base, symbol, version) {#base, version, CODE(symbol), 0, NULL},
#include "tools/simgpu/bridge/entries.def"
#undef ENTRY
#undef ENTRY_PT
#undef ALIAS
};

#define KNOWN_FLAGS (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)

/* Has any version of this name a per-thread variant? Then a lookup with that flag finds only such variants
 * (measured). */
static bool has_variant(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].per_thread && strcmp(table[i].base, name) == 0)
            return true;
    return false;
}

/* cuGetProcAddress_v2 without what every entry point does around its work. */
static CUresult procaddr(const char *name, void **out, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void (*code)(void) = NULL;
    int best = 0;
    bool variant;
    size_t i;

    if (!name || !out || (flags & ~(cuuint64_t)KNOWN_FLAGS) || version > DRIVER_VERSION)
        return CUDA_ERROR_INVALID_VALUE;
    variant = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && has_variant(name);
    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        int since = variant ? table[i].thread_version : table[i].version;

        if (strcmp(table[i].base, name) != 0)
            continue;
        if (found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
            found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (since > best &&
            (since <= version || version < 0)) { /* a negative version gets the newest (measured) */
            found = CU_GET_PROC_ADDRESS_SUCCESS;
            best = since;
            code = variant ? table[i].per_thread : table[i].symbol;
        }
    }
    *out = *(void **)&code;
    if (status)
        *status = found;
    return CUDA_SUCCESS; /* even if nothing was found: *out and *status say so (measured and documented) */
}

/* cuGetProcAddress (v1) has no status, so it returns an error. */
static CUresult find_or_fail(const char *name, void **out, int version, cuuint64_t flags)
{
    CUresult result = procaddr(name, out, version, flags, NULL);

    return result == CUDA_SUCCESS && !*out ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    return CALL_ANYTIME(cuGetProcAddress, find_or_fail(symbol, pfn, cudaVersion, flags));
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    return CALL_ANYTIME(cuGetProcAddress_v2, procaddr(symbol, pfn, cudaVersion, flags, symbolStatus));
}
