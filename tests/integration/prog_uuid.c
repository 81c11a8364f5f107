/* prog_uuid N: the UUID of card N, as NVML writes it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    char text[96];

    if (!library || argc < 2)
        return 2;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*handle)(unsigned, void **) =
        (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*uuid)(void *, char *, unsigned) =
        (int (*)(void *, char *, unsigned))dlsym(library, "nvmlDeviceGetUUID");
    if (init() || handle((unsigned)atoi(argv[1]), &device) || uuid(device, text, sizeof(text)))
        return 1;
    puts(text);
    return 0;
}
