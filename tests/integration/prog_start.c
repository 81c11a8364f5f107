/* prog_start: eight threads that all start CUDA at once, from the first look-up to the first block.
 * prog_start WAY. */
#include "prog_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define THREADS 8
#define MIB     (1024 * 1024)

static pthread_barrier_t together;
static atomic_int wrong;

static void *start(void *unused)
{
    CUcontext context = NULL;
    CUdeviceptr address;
    size_t free_bytes, total = 0;

    pthread_barrier_wait(&together);
    int a = cu.cuInit(0), b = cu.cuDevicePrimaryCtxRetain(&context, 0), c = cu.cuCtxSetCurrent(context),
        d = cu.cuMemAlloc(&address, 2 * MIB), e = cu.cuMemGetInfo(&free_bytes, &total);
    if (a || b || c || d || e) {
        printf("%d %d %d %d %d\n", a, b, c, d, e);
        atomic_fetch_add(&wrong, 1);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];

    if (argc < 2 || !prog_driver_open(argv[1]))
        return 4;
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, start, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("wrong=%d\n", atomic_load(&wrong));
    return 0;
}
