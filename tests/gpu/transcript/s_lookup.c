/* Sections lookup, errors and limits: names, versions, codes, numbers.
 *
 * lookup asks cuGetProcAddress for one name at many versions and numbers the different functions that come
 * back: a library in between must tell the same ABIs apart, and give nothing for what the driver refuses.
 * Whether they are also what dlsym() finds is the driver's own affair and not asked.
 */
#include "tx.h"

#include <stdio.h>
#include <string.h>

#define THREAD_STREAM CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
#define LEGACY_ONLY   CU_GET_PROC_ADDRESS_LEGACY_STREAM

static PFN_cuGetProcAddress_v12000 get;

/* The number of a function among those that were seen for the same name, from 1; 0 for none. */
static int ordinal(const char *name, void *function)
{
    enum { MOST = 16 };
    static char of[64];
    static void *seen[MOST];
    static int count;
    if (strcmp(of, name) != 0) {
        snprintf(of, sizeof(of), "%s", name);
        count = 0;
    }
    if (!function)
        return 0;
    for (int i = 0; i < count; i++) {
        if (seen[i] == function)
            return i + 1;
    }
    if (count < MOST)
        seen[count++] = function;
    return count;
}

static void ask(const char *name, int version, cuuint64_t flags)
{
    void *found = (void *)1;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
    CUresult rc = get(name, &found, version, flags, &status);
    tx_say("%s at %d, flags %d -> %s, status %d, function %d", name, version, (int)flags, tx_code(rc),
           (int)status, found == (void *)1 ? -1 : ordinal(name, found));
}

static void versions(void)
{
    static const char *const names[] = {"cuMemAlloc",
                                        "cuMemFree",
                                        "cuMemAllocPitch",
                                        "cuMemAllocManaged",
                                        "cuMemGetInfo",
                                        "cuDeviceTotalMem",
                                        "cuMemCreate",
                                        "cuMemMap",
                                        "cuMemAllocAsync",
                                        "cuMemFreeAsync",
                                        "cuMemHostAlloc",
                                        "cuMemGetAddressRange",
                                        "cuPointerGetAttribute",
                                        "cuIpcOpenMemHandle",
                                        "cuCtxDestroy",
                                        "cuDevicePrimaryCtxRelease",
                                        "cuDevicePrimaryCtxReset",
                                        "cuArrayCreate"};
    static const int asked[] = {1000, 2000, 3000, 3020, 4000, 6000, 7000, 10020, 11000, 11020, 12000, 13000};
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        for (size_t v = 0; v < sizeof(asked) / sizeof(asked[0]); v++)
            ask(names[n], asked[v], CU_GET_PROC_ADDRESS_DEFAULT);
    }
}

static void flags(void)
{
    static const char *const names[] = {"cuMemcpyHtoD", "cuMemcpyHtoDAsync", "cuMemsetD8Async",
                                        "cuMemAlloc",   "cuMemAllocAsync",   "cuLaunchKernel"};
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        ask(names[n], 12000, CU_GET_PROC_ADDRESS_DEFAULT);
        ask(names[n], 12000, LEGACY_ONLY);
        ask(names[n], 12000, THREAD_STREAM);
        ask(names[n], 3020, THREAD_STREAM);
    }
    ask("cuMemAlloc", 12000, LEGACY_ONLY | THREAD_STREAM);
    ask("cuMemAlloc", 12000, 0x100);
}

static void oddities(void)
{
    void *found = NULL;
    ask("cuNoSuchFunction", 12000, 0);
    ask("cuMemAlloc_v2", 12000, 0);
    ask("cudaMalloc", 12000, 0);
    ask("cudnnCreate", 12000, 0);
    ask("cublasCreate_v2", 12000, 0);
    ask("cumemalloc", 12000, 0);
    ask("", 12000, 0);
    ask("cuMemAlloc", 0, 0);
    ask("cuMemAlloc", -1, 0);
    /* Without a name the real driver crashes: not asked. */
    tx_rc("no place for the status", get("cuMemAlloc", &found, 12000, 0, NULL));
    tx_say("it is there: %s", tx_yes(found != NULL));
}

static void itself(void)
{
    PFN_cuGetProcAddress_v11030 old = driver_symbol("cuGetProcAddress");
    void *found = NULL;
    ask("cuGetProcAddress", 11020, 0);
    ask("cuGetProcAddress", 11030, 0);
    ask("cuGetProcAddress", 12000, 0);
    ask("cuGetProcAddress", 13000, 0);
    tx_say("the old one is there: %s", tx_yes(old != NULL));
    if (!old)
        return;
    tx_rc("old one: cuMemAlloc at 3020", old("cuMemAlloc", &found, 3020, 0));
    tx_say("it is the one that the new one gives: %s",
           tx_yes(found == driver_procaddr("cuMemAlloc", 3020, 0)));
    tx_rc("old one: an unknown name", old("cuNoSuchFunction", &found, 3020, 0));
    found = driver_procaddr("cuGetProcAddress", 12000, 0);
    if (found) {
        PFN_cuGetProcAddress_v12000 looked_up = (PFN_cuGetProcAddress_v12000)found;
        CUdriverProcAddressQueryResult status;
        tx_rc("through the one that was looked up", looked_up("cuMemFree", &found, 12000, 0, &status));
        tx_say("it is the same: %s", tx_yes(found == driver_procaddr("cuMemFree", 12000, 0)));
    }
}

void tx_run_lookup(void)
{
    get = (PFN_cuGetProcAddress_v12000)driver_symbol("cuGetProcAddress_v2");
    tx_say("cuGetProcAddress_v2 is there: %s", tx_yes(get != NULL));
    if (!get)
        return;
    versions();
    flags();
    oddities();
    itself();
    tx_say("dlsym of a name that is not there: %s", tx_yes(driver_symbol("cuNoSuchFunction") != NULL));
    tx_say("cuMemAlloc and cuMemAlloc_v2 are two: %s",
           tx_yes(driver_symbol("cuMemAlloc") != driver_symbol("cuMemAlloc_v2")));
}

void tx_run_errors(void)
{
    static const int codes[] = {0,   1,   2,   3,   4,   100, 101, 200, 201, 209, 215, 218,   304,
                                400, 401, 500, 600, 700, 702, 709, 712, 713, 719, 800, 801,   802,
                                900, 901, 902, 903, 904, 905, 906, 907, 908, 909, 999, 12345, -1};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        const char *name = "untouched", *text = "untouched";
        CUresult rc = drv.cuGetErrorName((CUresult)codes[i], &name);
        CUresult rc_text = drv.cuGetErrorString((CUresult)codes[i], &text);
        tx_say("%d -> %s, %s; %s, %s", codes[i], tx_code(rc), name ? name : "NULL", tx_code(rc_text),
               text ? text : "NULL");
    }
}

void tx_run_limits(void)
{
    size_t value = 0;
    int able = 9;
    CUdevice device = tx_start();
    CU(cuCtxGetLimit, &value, CU_LIMIT_MALLOC_HEAP_SIZE);
    tx_say("heap of kernels %zu", value);
    CU(cuCtxGetLimit, &value, CU_LIMIT_STACK_SIZE);
    tx_say("stack of kernels %zu", value);
    CU(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 16 * TX_MIB);
    CU(cuCtxGetLimit, &value, CU_LIMIT_MALLOC_HEAP_SIZE);
    tx_say("heap of kernels %zu", value);
    CU(cuCtxGetLimit, &value, (CUlimit)1000);
    CU(cuCtxSetLimit, (CUlimit)1000, 1);
    CU(cuCtxGetLimit, NULL, CU_LIMIT_STACK_SIZE);
    CU(cuDeviceCanAccessPeer, &able, device, device);
    tx_say("a device is its own peer: %d", able);
    CU(cuCtxEnablePeerAccess, NULL, 0);
}
