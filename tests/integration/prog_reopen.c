/* prog_reopen: a program that closes the driver and opens it again, and keeps using what it looked up before.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

typedef CUresult init_function(unsigned int);
typedef CUresult retain_function(CUcontext *, CUdevice);
typedef CUresult use_function(CUcontext);
typedef CUresult info_function(size_t *, size_t *);

int main(void)
{
    for (int i = 0; i < 3; i++) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        CUcontext context = NULL;
        size_t free_bytes = 0, total = 0;

        if (!library)
            return 2;
        init_function *init = (init_function *)dlsym(library, "cuInit");
        retain_function *retain = (retain_function *)dlsym(library, "cuDevicePrimaryCtxRetain");
        use_function *use = (use_function *)dlsym(library, "cuCtxSetCurrent");
        info_function *info = (info_function *)dlsym(library, "cuMemGetInfo_v2");
        int a = init(0), b = retain(&context, 0), c = use(context);

        if (i != 1) /* once it stays open */
            dlclose(library);
        int d = info(&free_bytes, &total);
        printf("%d %d %d %d total=%zu\n", a, b, c, d, total >> 20);
    }
    return 0;
}
