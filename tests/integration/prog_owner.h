/* prog_owner: two libraries that take memory through the CUDA runtime: one through the shared one, with the
 * file name of a cuDNN; one through a static one, with that of an NCCL. */
#ifndef TESTS_INTEGRATION_PROG_OWNER_H
#define TESTS_INTEGRATION_PROG_OWNER_H

#include <stddef.h>

int owner_shared_take(void **block, size_t bytes);
/* The same from a larger frame, and by a pointer. */
int owner_shared_take_deep(void **block, size_t bytes);
int owner_static_take(void **block, size_t bytes);

#endif
