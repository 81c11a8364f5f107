/* prog_small: a host program with many small device blocks and a heap of its own: the C library's, or, built
 * with PROG_JEMALLOC, a jemalloc that is linked in. prog_small SCENARIO. Checks itself, and prints what must
 * not depend on settings of either heap. Knows nothing of gpucap. */
#include "prog_check.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef PROG_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

#define BLOCKS  3000
#define LARGEST 14336 /* of the small ones */
#define AGAIN   64

static CUdeviceptr blocks[BLOCKS];

#ifndef PROG_JEMALLOC
static int asked; /* for /etc/malloc.conf */

/* Pretends that /etc/malloc.conf has settings that would break any jemalloc. */
ssize_t readlink(const char *restrict path, char *restrict text, size_t size)
{
    static const char worst[] = "junk:true,stats_print:true,abort:true,confirm_conf:true";

    if (strcmp(path, "/etc/malloc.conf") != 0)
        return readlinkat(AT_FDCWD, path, text, size);
    asked++;
    const size_t length = sizeof(worst) - 1 < size ? sizeof(worst) - 1 : size;
    memcpy(text, worst, length);
    return (ssize_t)length;
}
#endif

static size_t size_of(unsigned i)
{
    return 1 + i * 37U % LARGEST;
}

/* Blocks of every small size, each with its byte; every other one freed and taken again. */
static void use_blocks(void)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        MUST(0, cuMemAlloc(&blocks[i], size_of(i)));
        MUST(0, blocks[i] % 512);
        MUST(0, cuMemsetD8(blocks[i], (unsigned char)i, size_of(i)));
    }
    for (unsigned i = 0; i < BLOCKS; i += 2)
        MUST(0, cuMemFree(blocks[i]));
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        MUST(0, cuMemAlloc(&blocks[i], size_of(i)));
        MUST(0, cuMemsetD8(blocks[i], (unsigned char)i, size_of(i)));
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        MUST(0, prog_wrong(blocks[i], (unsigned char)i, size_of(i)));
}

static void free_blocks(void)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        MUST(0, cuMemFree(blocks[i]));
    MUST(CUDA_ERROR_INVALID_VALUE, cuMemFree(blocks[0]));
}

/* The heap must never write to device memory: counts bytes that are unchanged in blocks allocated again after
 * a free. */
static unsigned long kept_bytes(void)
{
    unsigned char *host = malloc(LARGEST);
    unsigned long kept = 0;

    MUST(true, host != NULL);
    for (unsigned i = 0; i < AGAIN; i++) {
        CUdeviceptr first, second;

        MUST(0, cuMemAlloc(&first, 1000 + i));
        prog_fill(first, 0xc3, 1000 + i);
        MUST(0, cuMemFree(first));
        MUST(0, cuMemAlloc(&second, 1000 + i));
        MUST(0, cuMemcpyDtoH(host, second, 1000 + i));
        for (unsigned n = 0; n < 1000 + i; n++)
            kept += host[n] == 0xc3;
        MUST(0, cuMemFree(second));
    }
    free(host);
    return kept;
}

/* Uses memory that the C library allocated, and every entry point of the heap. */
static void use_host_heap(void)
{
    char *line = NULL, *text = strdup("a block of the C library's own"), *path = realpath("/", NULL);
    size_t room = 0;
    void *aligned = NULL;
    FILE *file = fopen("/proc/self/stat", "r");

    MUST(true, file && getline(&line, &room, file) > 0);
    MUST(0, posix_memalign(&aligned, 4096, 10000));
    MUST(true, text && path && (text = realloc(text, 100000)) != NULL);
    fclose(file);
    free(line);
    free(text);
    free(path);
    free(aligned);
}

static void use(void)
{
    prog_context(0);
    for (unsigned round = 0; round < 3; round++) {
        use_blocks();
        use_host_heap();
        free_blocks();
    }
    printf("kept %lu\n", kept_bytes());
}

static void sleep_a_little(void *unused)
{
    (void)unused;
    usleep(20000);
}

/* Work on a block is still to come when it is freed and an equal one is taken: that one is zero all the same,
 * and stays so. */
static void zero(void)
{
    static const size_t sizes[] = {1000, 100000, 8 * MIB};
    CUstream stream;

    prog_context(0);
    MUST(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 12; i++) {
        const size_t bytes = sizes[i % 3];
        CUdeviceptr first, second;

        MUST(0, cuMemAlloc(&first, bytes));
        MUST(0, cuLaunchHostFunc(stream, sleep_a_little, NULL));
        MUST(0, cuMemsetD8Async(first, 0xff, bytes, stream));
        MUST(0, cuMemFree(first));
        MUST(0, cuMemAlloc(&second, bytes));
        MUST(0, cuCtxSynchronize());
        MUST(0, prog_wrong(second, 0, bytes));
        MUST(0, cuMemFree(second));
    }
    puts("zero");
}

/* ---- the end of threads ---- */

#define ENDS 20 /* threads that end */
#define KEYS 3
#ifdef __SANITIZE_THREAD__ /* forgets a thread in the last round, before anybody else's destructors */
#define ROUNDS (PTHREAD_DESTRUCTOR_ITERATIONS - 1)
#else
#define ROUNDS PTHREAD_DESTRUCTOR_ITERATIONS
#endif

static pthread_key_t key_before, key_between,
    key_after; /* made before, beside and after what the library makes */
static CUcontext context;

/* Uses device memory in a thread destructor, in every round of destructors. */
static void use_at_the_end(void *value)
{
    static _Thread_local unsigned calls;
    const pthread_key_t key = *(pthread_key_t *)value;
    CUdeviceptr kept, other;

    MUST(0, cuMemAlloc(&kept, 3000));
    MUST(0, cuMemAlloc(&other, 3000));
    MUST(true, kept != other);
    prog_fill(kept, 0x5a, 3000);
    prog_fill(other, 0xa5, 3000);
    MUST(0, prog_wrong(kept, 0x5a, 3000));
    MUST(0, cuMemFree(other));
    MUST(0, cuMemFree(kept));
    if (++calls <= KEYS * (ROUNDS - 1))
        MUST(0, pthread_setspecific(key, value));
}

static void *end_with_memory(void *unused)
{
    CUdeviceptr block;

    MUST(0, pthread_setspecific(key_before, &key_before));
    MUST(0, pthread_setspecific(key_between, &key_between));
    MUST(0, pthread_setspecific(key_after, &key_after));
    MUST(0, cuCtxSetCurrent(context));
    MUST(0, cuMemAlloc(&block, 1000));
    MUST(0, cuMemFree(block));
    return unused;
}

static void last_destructors(void)
{
    CUdeviceptr block;

    MUST(0, pthread_key_create(&key_before, use_at_the_end));
    context = prog_context(0);
    MUST(0, cuMemAlloc(&block, 8 * MIB));
    MUST(0, pthread_key_create(&key_between, use_at_the_end));
    MUST(0, cuMemFree(block));
    MUST(0, cuMemAlloc(&block, 1000));
    MUST(0, cuMemFree(block));
    MUST(0, pthread_key_create(&key_after, use_at_the_end));
    for (int i = 0; i < ENDS; i++) {
        pthread_t thread;

        MUST(0, pthread_create(&thread, NULL, end_with_memory, NULL));
        MUST(0, pthread_join(thread, NULL));
    }
    use_blocks();
    free_blocks();
    puts("ended");
}

static void settings(void)
{
    use();
#ifndef PROG_JEMALLOC
    printf("asked %d\n", asked);
#endif
}

#ifdef PROG_JEMALLOC
static size_t allocated(void)
{
    uint64_t epoch = 1;
    size_t bytes = 0, size = sizeof(bytes);

    MUST(0, mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch)));
    MUST(0, mallctl("stats.allocated", &bytes, &size, NULL, 0));
    return bytes;
}

static unsigned arenas(void)
{
    unsigned count = 0;
    size_t size = sizeof(count);

    MUST(0, mallctl("arenas.narenas", &count, &size, NULL, 0));
    return count;
}

/* The heap of this program: its settings, its figures, its arenas. */
static void own_heap(void)
{
    const char *junk = NULL;
    size_t size = sizeof(junk);

    MUST(0, mallctl("opt.junk", &junk, &size, NULL, 0));
    printf("junk %s\n", junk);
    void *fresh = malloc(100);
    MUST(true, fresh != NULL);
    const unsigned char first = *(volatile unsigned char *)fresh; /* what malloc has left there */
    printf("first byte %s\n", strcmp(junk, "true") != 0 ? "any" : first == 0xa5 ? "junk" : "not junk");
    free(fresh);
    use(); /* whatever is made once has been made */
    const unsigned arenas_before = arenas();
    const size_t before = allocated();
    use_blocks();
    const size_t with = allocated();
    MUST(arenas_before, arenas());
    free_blocks();
    /* 20 MiB of device blocks; simgpu has its own notes of what is mapped. */
    printf("%s\n", with < before + MIB / 2 ? "not counted" : "counted");
}
#endif

int main(int argc, char **argv)
{
    static const struct prog_scenario scenarios[] = {
        {"settings", settings},
        {"zero", zero},
        {"last_destructors", last_destructors},
#ifdef PROG_JEMALLOC
        {"own_heap", own_heap},
#endif
    };

    return prog_main(argc, argv, scenarios, sizeof(scenarios) / sizeof(*scenarios));
}
