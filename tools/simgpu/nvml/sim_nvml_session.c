/* sim_nvml_session: initialization, versions and error texts of the simulated NVML. Opens the cards itself,
 * so that it works in a process that never uses CUDA. Owns no lock; the count of initializations is atomic.
 */
#include "tools/simgpu/nvml/sim_nvml_session.h"
#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/nvml/sim_nvml_view.h"

#include <stdatomic.h>
#include <string.h>

#define DRIVER_VERSION      "580.00-sim"
#define NVML_VERSION        "13.580.00"
#define CUDA_DRIVER_VERSION 13000

struct nvmlDevice_st {
    char unused;
};

static struct nvmlDevice_st handles[CARD_MAX_DEVICES];
static atomic_int initialized;

nvmlReturn_t sim_nvml_session_check(void)
{
    if (atomic_load(&initialized) <= 0)
        return NVML_ERROR_UNINITIALIZED;
    /* Does nothing, except in a child that was forked after nvmlInit. */
    return sim_card_open() ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

nvmlReturn_t sim_nvml_session_card(nvmlDevice_t device, int *card)
{
    SIM_NVML_TRY(sim_nvml_session_check());
    for (int i = 0; i < sim_card_count(); i++) {
        if (device == &handles[i]) {
            *card = i;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlDevice_t sim_nvml_session_handle(int card)
{
    return &handles[card];
}

nvmlReturn_t sim_nvml_session_text(const char *text, char *out, unsigned int length)
{
    size_t size = strlen(text) + 1;
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (length < size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    if (flags & ~(unsigned)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sim_nvml_view_read() || sim_nvml_view_now().absent || sim_card_open())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    atomic_fetch_add(&initialized, 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    int count = atomic_load(&initialized);
    while (count > 0) {
        if (atomic_compare_exchange_weak(&initialized, &count, count - 1))
            return NVML_SUCCESS;
    }
    return NVML_ERROR_UNINITIALIZED;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_INSUFFICIENT_POWER] = "Insufficient External Power",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_IRQ_ISSUE] = "Interrupt Request Issue",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
        [NVML_ERROR_CORRUPTED_INFOROM] = "Corrupted infoROM",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires reset",
        [NVML_ERROR_OPERATING_SYSTEM] = "GPU access blocked by the operating system",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_MEMORY] = "Insufficient Memory",
        [NVML_ERROR_NO_DATA] = "No data",
        [NVML_ERROR_VGPU_ECC_NOT_SUPPORTED] = "vGPU not supported with ECC enabled",
        [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient resources",
        [NVML_ERROR_FREQ_NOT_SUPPORTED] = "Frequency not supported",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Version mismatch",
        [NVML_ERROR_DEPRECATED] = "Deprecated",
        [NVML_ERROR_NOT_READY] = "Not Ready",
        [NVML_ERROR_GPU_NOT_FOUND] = "GPU not found",
        [NVML_ERROR_INVALID_STATE] = "Invalid State",
        [NVML_ERROR_RESET_TYPE_NOT_SUPPORTED] = "Reset Type Not Supported",
    };
    unsigned code = (unsigned)result;
    return code < sizeof(texts) / sizeof(*texts) ? texts[code] : "Unknown Error";
}

/* The version queries work before nvmlInit too, as in the real library. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    return sim_nvml_session_text(NVML_VERSION, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = CUDA_DRIVER_VERSION;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    nvmlReturn_t result = sim_nvml_session_check();
    return result == NVML_SUCCESS ? sim_nvml_session_text(DRIVER_VERSION, version, length) : result;
}
