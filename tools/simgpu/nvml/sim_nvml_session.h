/* sim_nvml_session: what the NVML entry points share: whether the library is initialized, and the card of a
 * handle. A handle is the address of an element of a static array, so that any other pointer is refused
 * without being read.
 */
#ifndef SIMGPU_NVML_SESSION_H
#define SIMGPU_NVML_SESSION_H

#include <stddef.h>
#include "tools/simgpu/nvml/sim_nvml_abi.h"

/* Returns from the calling function if the call fails, with the call's error. */
#define SIM_NVML_TRY(call)                                                                                   \
    do {                                                                                                     \
        const nvmlReturn_t tried_ = (call);                                                                  \
        if (tried_ != NVML_SUCCESS)                                                                          \
            return tried_;                                                                                   \
    } while (0)

/* Returns NVML_SUCCESS between the first nvmlInit and the last nvmlShutdown. */
nvmlReturn_t sim_nvml_session_check(void);

/* The same, and sets *card to the card of a handle. */
nvmlReturn_t sim_nvml_session_card(nvmlDevice_t device, int *card);
nvmlDevice_t sim_nvml_session_handle(int card);

/* Copies a text with its terminating zero into the caller's buffer. Returns INSUFFICIENT_SIZE if it does not
 * fit. */
nvmlReturn_t sim_nvml_session_text(const char *text, char *out, unsigned int length);

#endif
