/* prog_early: a preloaded library that looks names up in its constructor, which runs before that of any
 * library named before it in LD_PRELOAD, and that defines malloc's neighbour with RTLD_NEXT as tracers do. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *(*next_calloc)(size_t, size_t);

__attribute__((constructor)) static void begin(void)
{
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    void *driver = dlsym(RTLD_DEFAULT, "cuInit"), *nvml = dlsym(RTLD_NEXT, "nvmlDeviceGetMemoryInfo");
    void *p = next_calloc ? next_calloc(1, 10) : NULL;

    fprintf(stderr, "early calloc=%d driver=%d nvml=%d\n", p != NULL, driver != NULL, nvml != NULL);
    free(p);
}
