/* procaddr: cuGetProcAddress. See procaddr.h. One table, generated from entries.def; no other list of names.
 */
#include "procaddr.h"

#include "call.h"
#include "../engine/device.h"

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
#include "entries.def"
#undef ENTRY
#undef ENTRY_PT
#undef ALIAS
};

#define KNOWN_FLAGS (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)

CUresult procaddr_find(const char *name, void **out, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    const struct address *best = NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void (*code)(void) = NULL;
    size_t i;

    if (!name || !out || (flags & ~(cuuint64_t)KNOWN_FLAGS) || version > DRIVER_VERSION)
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(table[i].base, name) != 0)
            continue;
        if (found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
            found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (table[i].version <= version && (!best || table[i].version > best->version))
            best = &table[i];
    }
    if (best) {
        found = CU_GET_PROC_ADDRESS_SUCCESS;
        code = best->symbol;
        if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && best->per_thread &&
            best->thread_version <= version)
            code = best->per_thread;
    }
    *out = *(void **)&code;
    if (status)
        *status = found;
    return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    return CALL_ANYTIME(cuGetProcAddress, procaddr_find(symbol, pfn, cudaVersion, flags, NULL));
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    return CALL_ANYTIME(cuGetProcAddress_v2, procaddr_find(symbol, pfn, cudaVersion, flags, symbolStatus));
}
