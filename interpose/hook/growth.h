/* growth: how much stack a context must keep for a kernel. Owns no lock. */
#ifndef GPUCAP_GROWTH_H
#define GPUCAP_GROWTH_H

#include "interpose/driver/driver.h"

#include <stdint.h>

/* Returns the bytes of local memory per thread of a CUfunction, or of a CUkernel passed as one; 0 if not
 * known. Loads the kernel if that has not happened, as its launch would. */
uint64_t growth_stack_of(CUfunction kernel);

#endif
