/* For the updates of the CPU reference (sgd.c, adamw.c): detects gradients that are not finite. Any thread of
 * cpu_threads.h may call it. */
#ifndef KERNELS_GRAD_CHECK_H
#define KERNELS_GRAD_CHECK_H

#include <stddef.h>

#include "kernels/ops.h"

/* Sets scalars->bad_step, if it is 0 and one of `count` gradients is not finite. */
void grad_check_note_bad(const float *grad, size_t count, struct ops_scalars *scalars);

#endif
