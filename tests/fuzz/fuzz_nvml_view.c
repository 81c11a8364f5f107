/* What the simulated NVML shows: a text is read whole or refused with a reason. */
#include "fuzz.h"
#include "tools/simgpu/nvml/sim_nvml_view.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct sim_nvml_view view = {0};
    char why[128] = "";
    char *text = fuzz_text(bytes, count);
    if (sim_nvml_view_parse(text, &view, why, sizeof(why)) != 0)
        FUZZ_PROMISE(*why && strnlen(why, sizeof(why)) < sizeof(why));
    else
        FUZZ_PROMISE(view.pids <= SIM_NVML_VIEW_MAX_PIDS && view.newcomers <= SIM_NVML_VIEW_MAX_NEWCOMERS);
    free(text);
    return 0;
}
