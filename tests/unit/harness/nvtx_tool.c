/* What a profiler is to NVTX: a library that NVTX_INJECTION64_PATH names. Writes each range that begins or
 * ends to the file NVTX_TOOL_OUT, a line each. */
#include <stdio.h>
#include <stdlib.h>

#include <nvtx3/nvToolsExt.h>

static FILE *out;

static int NVTX_API push(const char *name)
{
    fprintf(out, "begin %s\n", name);
    return 0;
}

static int NVTX_API pop(void)
{
    fprintf(out, "end\n");
    fflush(out);
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *table = get(NVTX_ETID_CALLBACKS);
    const char *path = getenv("NVTX_TOOL_OUT");
    NvtxFunctionTable functions;
    unsigned size = 0;

    out = path ? fopen(path, "we") : NULL;
    if (!out || !table || !table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) ||
        size <= NVTX_CBID_CORE_RangePop)
        return 0;
    *functions[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *functions[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
