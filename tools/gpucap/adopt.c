/* adopt: see adopt.h. */
#include "tools/gpucap/adopt.h"

#include "tools/gpucap/cli.h"

#include <stdlib.h>
#include <string.h>

struct variable {
    const char *name, *value;
    const char *newer; /* another name of the same variable, for a user's own value; NULL: none */
};

static const struct variable pool[] = {
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", "1", NULL},
    {"XLA_PYTHON_CLIENT_ALLOCATOR", "platform", NULL},
    {"XLA_PYTHON_CLIENT_PREALLOCATE", "false", NULL},
    {"TF_FORCE_GPU_ALLOW_GROWTH", "true", NULL},
    {NULL, NULL, NULL},
};

static const struct variable async[] = {
    {"PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", "PYTORCH_ALLOC_CONF"},
    {"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", NULL},
    {"XLA_PYTHON_CLIENT_PREALLOCATE", "false", NULL},
    {"TF_GPU_ALLOCATOR", "cuda_malloc_async", NULL},
    {NULL, NULL, NULL},
};

int adopt_frameworks(const char *way)
{
    const struct variable *variables = !way || !strcmp(way, "pool") ? pool
                                       : !strcmp(way, "async")      ? async
                                                                    : NULL;

    if (!variables)
        return cli_fail("run: --adopt='%s' is not valid; accepted: " ADOPT_FORM, way);
    for (; variables->name; variables++) {
        if (variables->newer && getenv(variables->newer))
            continue;
        if (setenv(variables->name, variables->value, 0))
            return cli_fail("run: no memory for the environment");
    }
    return 0;
}
