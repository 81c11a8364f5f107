/* nvml_session: what the NVML entry points share: whether the library is initialized, and which card a handle
 * means. A handle is the address of a static element, so that a foreign pointer is refused without being
 * read.
 */
#ifndef SIMGPU_NVML_SESSION_H
#define SIMGPU_NVML_SESSION_H

#include <stddef.h>
#include "tools/simgpu/nvml/nvml_abi.h"

/* NVML_SUCCESS between the first nvmlInit and the last nvmlShutdown. */
nvmlReturn_t nvml_session_check(void);

/* The same, and the card of a handle in *card. */
nvmlReturn_t nvml_session_card(nvmlDevice_t device, int *card);
nvmlDevice_t nvml_session_handle(int card);

/* Copies a text with its end into the caller's buffer: INSUFFICIENT_SIZE if it does not fit. */
nvmlReturn_t nvml_session_text(const char *text, char *out, unsigned int length);

#endif
