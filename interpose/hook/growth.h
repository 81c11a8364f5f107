/* growth: how much stack a kernel makes a context keep. */
#ifndef GPUCAP_GROWTH_H
#define GPUCAP_GROWTH_H

#include "interpose/driver/driver.h"

#include <stdint.h>

/* Bytes of local memory per thread of a CUfunction, or of a CUkernel in its place; 0 if it cannot be told.
 * Loads the kernel if that has not happened yet, as its launch would. */
uint64_t growth_stack_of(CUfunction kernel);

#endif
