/* pattern: threads take blocks of all sizes, write a pattern of its own into each, hand them to one another,
 * and before each free a kernel looks whether the pattern is still there. The free does not wait for that
 * kernel, as cuMemFree does not ask for it. Knows nothing of gpucap.
 *
 *     pattern [--seconds=N] [--threads=N] [--streams=N] [--budget=MIB] [--largest=MIB] [--seed=N]
 *
 * One stream: all work of all threads goes to it. More: each block has one of them. At most `budget` live at
 * a time, and no block is larger than `largest`. One line: "pattern blocks=... bytes=... refused=...
 * wrong=...". Exit status 1 if a word was wrong or nothing was done, 77 without a driver.
 */
#include "transcript/tx_driver.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NO_DRIVER   77
#define USAGE       64
#define CALL_FAILED 2
#define MIB         ((uint64_t)1 << 20)
#define THREADS_MAX 64
#define STREAMS_MAX 16
#define PLACES      512 /* slots for blocks until a thread frees them */
#define GRID        64
#define BLOCK       256
#define AHEAD       64 /* steps of a thread between waits for its own work: streams have a limited depth */
#define WORD        sizeof(uint32_t)

/* The text of kernels.ptx, ended by a zero byte. */
__asm__(".section .rodata\n.global pattern_ptx\npattern_ptx:\n.incbin \"" PATTERN_PTX
        "\"\n.byte 0\n.previous\n");
extern const char pattern_ptx[];

struct block {
    CUdeviceptr address;
    uint64_t bytes; /* 0: none */
    uint32_t pattern;
    CUstream stream; /* that wrote it */
};

static struct {
    unsigned seconds, threads, streams;
    uint64_t budget, largest, seed;
} options = {
    .seconds = 20, .threads = 4, .streams = 3, .budget = 4096 * MIB, .largest = 256 * MIB, .seed = 1};

static CUcontext context;
static CUfunction check;
static CUstream streams[STREAMS_MAX];
static uint64_t *mismatches; /* pinned host memory, written by kernels */
static struct {
    pthread_mutex_t lock;
    struct block block;
} places[PLACES];
static atomic_uint_fast64_t live, blocks, bytes_written, refused, wrong_tails;
static atomic_uint_fast32_t next_pattern = 0x5eed0001;
static struct timespec until;

static void ok(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "pattern: %s failed: %d\n", call, (int)result);
    _exit(CALL_FAILED);
}

#define OK(call) ok((call), #call)

static uint64_t random_number(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Each magnitude as often as another, from one byte. */
static uint64_t random_size(uint64_t *state)
{
    const unsigned bits = 64 - (unsigned)__builtin_clzll(options.largest);
    const uint64_t bytes = 1 + random_number(state) % ((uint64_t)1 << random_number(state) % bits);

    return bytes < options.largest ? bytes : options.largest;
}

/* The words of the block, and byte by byte what is left. */
static void fill(const struct block *b)
{
    const uint64_t words = b->bytes / WORD;

    if (words)
        OK(drv.cuMemsetD32Async(b->address, b->pattern, words, b->stream));
    for (uint64_t i = words * WORD; i < b->bytes; i++)
        OK(drv.cuMemsetD8Async(b->address + i, (unsigned char)(b->pattern >> 8 * (i % WORD)), 1, b->stream));
}

/* The kernel may still be at work when this returns. What is less than a word is copied, and waited for. */
static void verify(const struct block *b)
{
    CUdeviceptr address = b->address;
    uint64_t words = b->bytes / WORD;
    uint32_t pattern = b->pattern;
    void *args[] = {&address, &pattern, &words, &mismatches};

    if (words)
        OK(drv.cuLaunchKernel(check, GRID, 1, 1, BLOCK, 1, 1, 0, b->stream, args, NULL));
    unsigned char tail[WORD];
    const uint64_t left = b->bytes % WORD;
    if (!left || (words && b->pattern % 8))
        return;
    OK(drv.cuMemcpyDtoHAsync(tail, address + words * WORD, left, b->stream));
    OK(drv.cuStreamSynchronize(b->stream));
    for (uint64_t i = 0; i < left; i++)
        atomic_fetch_add(&wrong_tails, tail[i] != (unsigned char)(pattern >> 8 * i));
}

static bool take(struct block *b, uint64_t *state)
{
    b->bytes = random_size(state);
    if (atomic_fetch_add(&live, b->bytes) + b->bytes > options.budget)
        goto none;
    const CUresult result = drv.cuMemAlloc(&b->address, b->bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        atomic_fetch_add(&refused, 1);
        goto none;
    }
    ok(result, "cuMemAlloc");
    b->pattern = (uint32_t)atomic_fetch_add(&next_pattern, 2654435761U);
    b->stream = streams[random_number(state) % options.streams];
    atomic_fetch_add(&blocks, 1);
    atomic_fetch_add(&bytes_written, b->bytes);
    fill(b);
    return true;
none:
    atomic_fetch_sub(&live, b->bytes);
    *b = (struct block){0};
    return false;
}

static void give(const struct block *b)
{
    verify(b);
    OK(drv.cuMemFree(b->address));
    atomic_fetch_sub(&live, b->bytes);
}

static bool time_is_up(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec);
}

static void *run(void *number)
{
    uint64_t state = (options.seed + 1) * 0x9e3779b97f4a7c15U + (uintptr_t)number * 0xd1342543de82ef95U;

    OK(drv.cuCtxSetCurrent(context));
    for (unsigned step = 1; !time_is_up(); step++) {
        struct block b = {0};
        const unsigned place = (unsigned)(random_number(&state) % PLACES);

        if (random_number(&state) % 2)
            take(&b, &state);
        pthread_mutex_lock(&places[place].lock);
        const struct block before = places[place].block;
        places[place].block = b;
        pthread_mutex_unlock(&places[place].lock);
        if (before.bytes)
            give(&before);
        if (step % AHEAD == 0)
            OK(drv.cuStreamSynchronize(streams[random_number(&state) % options.streams]));
    }
    return NULL;
}

static void open_card(void)
{
    CUdevice card;
    CUmodule module;

    OK(drv.cuInit(0));
    OK(drv.cuDeviceGet(&card, 0));
    OK(drv.cuDevicePrimaryCtxRetain(&context, card));
    OK(drv.cuCtxSetCurrent(context));
    OK(drv.cuMemHostAlloc((void **)&mismatches, sizeof(*mismatches),
                          CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    *mismatches = 0;
    OK(drv.cuModuleLoadData(&module, pattern_ptx));
    OK(drv.cuModuleGetFunction(&check, module, "check_u32"));
    for (unsigned i = 0; i < options.streams; i++)
        OK(drv.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < PLACES; i++)
        pthread_mutex_init(&places[i].lock, NULL);
}

static uint64_t number_of(const char *text, uint64_t most)
{
    char *end;
    const unsigned long long number = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || number == 0 || number > most) {
        fprintf(stderr, "pattern: '%s' is not a number from 1 to %llu\n", text, (unsigned long long)most);
        exit(USAGE);
    }
    return number;
}

static void parse(int argc, char **argv)
{
    static const struct option known[] = {{"seconds", required_argument, NULL, 's'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"streams", required_argument, NULL, 'n'},
                                          {"budget", required_argument, NULL, 'b'},
                                          {"largest", required_argument, NULL, 'l'},
                                          {"seed", required_argument, NULL, 'r'},
                                          {0}};
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 's':
            options.seconds = (unsigned)number_of(optarg, 86400);
            break;
        case 't':
            options.threads = (unsigned)number_of(optarg, THREADS_MAX);
            break;
        case 'n':
            options.streams = (unsigned)number_of(optarg, STREAMS_MAX);
            break;
        case 'b':
            options.budget = number_of(optarg, 1 << 24) * MIB;
            break;
        case 'l':
            options.largest = number_of(optarg, 1 << 20) * MIB;
            break;
        case 'r':
            options.seed = number_of(optarg, UINT32_MAX);
            break;
        default:
            exit(USAGE);
        }
    }
    if (optind < argc)
        exit(USAGE);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX];

    parse(argc, argv);
    if (!driver_open(DRIVER_BY_DLSYM))
        return NO_DRIVER;
    open_card();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += options.seconds;
    for (unsigned i = 0; i < options.threads; i++)
        ok(pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS,
           "pthread_create");
    for (unsigned i = 0; i < options.threads; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < PLACES; i++) {
        if (places[i].block.bytes)
            give(&places[i].block);
    }
    OK(drv.cuCtxSynchronize());
    const uint64_t wrong = *mismatches + atomic_load(&wrong_tails);
    printf("pattern blocks=%llu bytes=%llu refused=%llu wrong=%llu\n", (unsigned long long)blocks,
           (unsigned long long)bytes_written, (unsigned long long)refused, (unsigned long long)wrong);
    return wrong == 0 && blocks > 0 ? 0 : 1;
}
