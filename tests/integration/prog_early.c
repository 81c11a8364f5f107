/* prog_early: a preloaded library that looks names up in its constructor, which runs before that of any
 * library named before it in LD_PRELOAD. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void)
{
    pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");
    void *driver = dlsym(RTLD_DEFAULT, "cuInit"), *nvml = dlsym(RTLD_NEXT, "nvmlDeviceGetMemoryInfo");

    fprintf(stderr, "early next=%d driver=%d nvml=%d\n", next && next() == getppid(), driver != NULL,
            nvml != NULL);
}
