/* Section libraries: kernels of a library, which belong to no context, and their functions in one. */
#include "tx.h"

#define WORDS 1000

/* Which calls take a CUkernel in place of a CUfunction? */
static void as_function(CUfunction f)
{
    CUmodule module = NULL;
    CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_MAX;
    const char *name = NULL;
    size_t offset = 0, size = 0;
    int value = -1;

    CU(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f);
    CU(cuFuncSetAttribute, f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50);
    CU(cuFuncSetCacheConfig, f, CU_FUNC_CACHE_PREFER_L1);
    tx_rc("cuFuncGetModule", drv.cuFuncGetModule(&module, f));
    CU(cuFuncGetName, &name, f);
    tx_say("name: %s", name ? name : "none");
    CU(cuFuncGetParamInfo, f, 1, &offset, &size);
    tx_say("second parameter: %zu bytes at %zu", size, offset);
    CU(cuFuncLoad, f);
    CU(cuFuncIsLoaded, &state, f);
    CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, f, 128, 0);
}

static void launches(CUfunction f)
{
    struct tx_kernels k;
    CUdeviceptr p = 0;

    if (tx_rc("kernels loaded", tx_load_kernels(&k)) || CU(cuMemAlloc, &p, 4 * WORDS))
        return;
    k.fill_u32 = f;
    tx_rc("fill", tx_fill(&k, p, 0x12345678, WORDS, NULL));
    tx_say("wrong words: %ld", tx_check(&k, p, 0x12345678, WORDS));
    CU(cuMemFree, p);
    CU(cuModuleUnload, k.module);
}

static void kernel_calls(CUkernel kernel, CUdevice device)
{
    const char *name = NULL;
    size_t offset = 0, size = 0;
    int value = -1;

    CU(cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel, device);
    CU(cuKernelGetAttribute, NULL, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel, device);
    CU(cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, NULL, device);
    CU(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, kernel, device);
    CU(cuKernelGetName, &name, kernel);
    tx_say("name: %s", name ? name : "none");
    CU(cuKernelGetParamInfo, kernel, 1, &offset, &size);
    tx_say("second parameter: %zu bytes at %zu", size, offset);
}

void tx_run_libraries(void)
{
    const CUdevice device = tx_start();
    CUlibrary library = NULL;
    CUkernel kernel = NULL, again = NULL, all[16] = {NULL};
    bool listed = false;
    CUfunction f = NULL, second = NULL;
    unsigned count = 0;

    CU(cuLibraryLoadData, &library, NULL, NULL, NULL, 0, NULL, NULL, 0);
    if (CU(cuLibraryLoadData, &library, tx_ptx, NULL, NULL, 0, NULL, NULL, 0))
        return;
    CU(cuLibraryGetKernel, &kernel, library, "no_such_kernel");
    CU(cuLibraryGetKernelCount, &count, library);
    tx_say("%u kernels", count);
    if (CU(cuLibraryGetKernel, &kernel, library, "fill_u32"))
        return;
    CU(cuLibraryGetKernel, &again, library, "fill_u32");
    CU(cuLibraryEnumerateKernels, all, 16, library);
    for (unsigned i = 0; i < 16; i++)
        listed = listed || all[i] == kernel;
    tx_say("asked for again, the same: %s, in the list: %s", tx_yes(again == kernel), tx_yes(listed));
    CU(cuKernelGetFunction, NULL, kernel);
    CU(cuKernelGetFunction, &f, NULL);
    CU(cuKernelGetFunction, &f, kernel);
    CU(cuKernelGetFunction, &second, kernel);
    tx_say("function: the same each time: %s, another handle than the kernel: %s", tx_yes(f == second),
           tx_yes((void *)f != (void *)kernel));
    kernel_calls(kernel, device);
    tx_say("as a function, the function:");
    as_function(f);
    launches(f);
    tx_say("as a function, the kernel:");
    as_function((CUfunction)kernel);
    launches((CUfunction)kernel);
    CU(cuLibraryUnload, library);
}
