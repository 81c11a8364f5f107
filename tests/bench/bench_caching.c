/* bench_caching: a caching allocator with PyTorch's default policy. See bench_caching.h. The numbers are
 * those of PyTorch's c10/cuda/CUDACachingAllocator. */
#include "bench_caching.h"

#include <stdlib.h>
#include <string.h>

#include "bench_cuda.h"

#define ROUND         UINT64_C(512)
#define SMALL_SIZE    (UINT64_C(1) << 20) /* the largest that comes out of a small segment */
#define SMALL_SEGMENT (UINT64_C(2) << 20)
#define LARGE_SEGMENT (UINT64_C(20) << 20) /* for requests between the two */
#define OWN_SEGMENT   (UINT64_C(10) << 20) /* from here on a request gets a segment of its own size */
#define OWN_ROUND     (UINT64_C(2) << 20)

struct caching_block {
    uint64_t address, bytes;
    uint32_t stream;
    bool small;
    bool free;
    struct caching_block *lower, *upper; /* of the same segment */
};

/* Free blocks of one kind by stream, size and address. */
struct shelf {
    struct caching_block **blocks;
    size_t count, capacity;
};

static struct shelf shelves[2]; /* large, small */
static uint64_t calls;

static uint64_t round_to(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static int compare(const struct caching_block *a, uint32_t stream, uint64_t bytes, uint64_t address)
{
    if (a->stream != stream)
        return a->stream < stream ? -1 : 1;
    if (a->bytes != bytes)
        return a->bytes < bytes ? -1 : 1;
    return a->address < address ? -1 : a->address > address;
}

/* The first at or behind. */
static size_t place_of(const struct shelf *shelf, uint32_t stream, uint64_t bytes, uint64_t address)
{
    size_t low = 0, high = shelf->count;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (compare(shelf->blocks[middle], stream, bytes, address) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void put(struct caching_block *block)
{
    struct shelf *shelf = &shelves[block->small];
    const size_t i = place_of(shelf, block->stream, block->bytes, block->address);

    if (shelf->count == shelf->capacity) {
        shelf->capacity = shelf->capacity ? 2 * shelf->capacity : 1024;
        shelf->blocks = realloc(shelf->blocks, shelf->capacity * sizeof(struct caching_block *));
        if (!shelf->blocks)
            bench_fail("no memory");
    }
    memmove(&shelf->blocks[i + 1], &shelf->blocks[i], (shelf->count - i) * sizeof(struct caching_block *));
    shelf->blocks[i] = block;
    shelf->count++;
    block->free = true;
}

static void take(struct shelf *shelf, size_t i)
{
    shelf->blocks[i]->free = false;
    shelf->count--;
    memmove(&shelf->blocks[i], &shelf->blocks[i + 1], (shelf->count - i) * sizeof(struct caching_block *));
}

static void take_block(struct caching_block *block)
{
    struct shelf *shelf = &shelves[block->small];

    take(shelf, place_of(shelf, block->stream, block->bytes, block->address));
}

static struct caching_block *new_block(struct caching_block values)
{
    struct caching_block *block = malloc(sizeof(*block));

    if (!block)
        bench_fail("no memory");
    *block = values;
    return block;
}

/* Whole segments that are free go back to the driver. */
static void give_back(void)
{
    for (int kind = 0; kind < 2; kind++) {
        for (size_t i = shelves[kind].count; i-- > 0;) {
            struct caching_block *block = shelves[kind].blocks[i];

            if (block->lower || block->upper)
                continue;
            take(&shelves[kind], i);
            bench_cuda.free((void *)(uintptr_t)block->address);
            calls++;
            free(block);
        }
    }
}

static struct caching_block *new_segment(uint64_t bytes, uint32_t stream, bool small)
{
    const uint64_t size = small                 ? SMALL_SEGMENT
                          : bytes < OWN_SEGMENT ? LARGE_SEGMENT
                                                : round_to(bytes, OWN_ROUND);
    void *memory = NULL;

    calls++;
    if (bench_cuda.malloc(&memory, size) != cudaSuccess) {
        bench_cuda.last_error();
        give_back();
        calls++;
        if (bench_cuda.malloc(&memory, size) != cudaSuccess) {
            bench_cuda.last_error();
            return NULL;
        }
    }
    return new_block((struct caching_block){
        .address = (uintptr_t)memory, .bytes = size, .stream = stream, .small = small});
}

static void split(struct caching_block *block, uint64_t bytes)
{
    struct caching_block *rest = new_block((struct caching_block){.address = block->address + bytes,
                                                                  .bytes = block->bytes - bytes,
                                                                  .stream = block->stream,
                                                                  .small = block->small,
                                                                  .lower = block,
                                                                  .upper = block->upper});

    if (block->upper)
        block->upper->lower = rest;
    block->upper = rest;
    block->bytes = bytes;
    put(rest);
}

struct caching_block *caching_alloc(uint64_t bytes, uint32_t stream)
{
    const uint64_t size = round_to(bytes, ROUND);
    const bool small = size <= SMALL_SIZE;
    struct shelf *shelf = &shelves[small];
    const size_t i = place_of(shelf, stream, size, 0);
    struct caching_block *block = i < shelf->count ? shelf->blocks[i] : NULL;

    if (block && block->stream == stream)
        take(shelf, i);
    else
        block = new_segment(size, stream, small);
    if (block && (small ? block->bytes - size >= ROUND : block->bytes - size > SMALL_SIZE))
        split(block, size);
    return block;
}

/* Joins the upper of two neighbours to the lower. */
static void join(struct caching_block *low, struct caching_block *high)
{
    low->bytes += high->bytes;
    low->upper = high->upper;
    if (high->upper)
        high->upper->lower = low;
    free(high);
}

void caching_free(struct caching_block *block)
{
    if (block->upper && block->upper->free) {
        take_block(block->upper);
        join(block, block->upper);
    }
    if (block->lower && block->lower->free) {
        struct caching_block *low = block->lower;

        take_block(low);
        join(low, block);
        block = low;
    }
    put(block);
}

uint64_t caching_calls(void)
{
    return calls;
}
