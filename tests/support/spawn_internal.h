/* What the two halves of spawn share. */
#ifndef TESTS_SUPPORT_SPAWN_INTERNAL_H
#define TESTS_SUPPORT_SPAWN_INTERNAL_H

#include <stddef.h>

struct spawn_env {
    char **vars; /* owned "NAME=value" strings, ended by NULL */
    size_t count;
};

void *spawn_alloc(void *old, size_t bytes); /* realloc that ends the test when there is no memory */

#endif
