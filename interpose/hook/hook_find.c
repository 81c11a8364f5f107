/* Hooks through which a program finds and starts the driver: they call the driver, then replace the address
 * that it returned by ours. */
#include "interpose/account/device.h"
#include "interpose/account/measure.h"
#include "interpose/hook/hooks.h"
#include "interpose/hook/resolve.h"
#include "interpose/library.h"
#include "interpose/recorded.h"

/* Replaces *function by our hook. Goes by the address that the driver returned, never by the name: one name
 * has several ABIs. */
static CUresult hooked(CUresult result, const char *symbol, void **function)
{
    if (result == CUDA_SUCCESS && function && *function) {
        void *address = *function;

        rebind_check();
        *function = hooks_for(address);
        if (*function == address && !hooks_own(address))
            resolve_passed_on(symbol);
    }
    return result;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return hooked(driver.cuGetProcAddress(symbol, function, version, flags), symbol, function);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    return hooked(driver.cuGetProcAddress_v2(symbol, function, version, flags, status), symbol, function);
}

CUresult cuInit(unsigned int flags)
{
    static atomic_bool started; /* some programs call cuInit again and again */
    const enum library_mode mode = library_mode();
    const bool first = !atomic_load_explicit(&started, memory_order_relaxed);
    /* If NVML may list us under another number, it must look at the cards before our context exists. */
    const bool records = first && mode == LIBRARY_ON && library_options()->record[0];
    const bool limited = first && mode == LIBRARY_ON && options_any_limit(library_options());
    const bool look_first = (limited || records) && !measure_knows_pid();

    if (mode == LIBRARY_REFUSE)
        return CUDA_ERROR_NOT_PERMITTED;
    if (look_first || records)
        measure_start(); /* runs while the driver starts */
    CUresult result = driver.cuInit(flags);
    rebind_check();
    if (result == CUDA_SUCCESS) {
        atomic_store_explicit(&started, true, memory_order_relaxed);
        if (library_cuda_started())
            recorded_begin(library_options());
        if (look_first)
            measure_ready();
        if (library_mode() == LIBRARY_ON && !device_check_rules()) {
            library_refuse();
            result = CUDA_ERROR_NOT_PERMITTED;
        }
    }
    return result;
}
