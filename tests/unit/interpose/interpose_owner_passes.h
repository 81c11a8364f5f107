/* interpose_owner_passes: see interpose_owner_passes.c. The test builds it twice, under names of libraries
 * that pass calls on. */
#ifndef GPUCAP_TESTS_INTERPOSE_OWNER_PASSES_H
#define GPUCAP_TESTS_INTERPOSE_OWNER_PASSES_H

#include <stddef.h>

/* Calls next(argument). */
int owner_passes(int (*next)(void *argument), void *argument);
/* Calls a function without arguments. */
int owner_passes_last(void *hook);

#endif
