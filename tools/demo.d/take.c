/* take: a small CUDA program that knows nothing of gpucap, for tools/demo.
 *
 *     take look    says how much memory the device has and how much is free
 *     take polite  takes what it is told is free, in one block, and uses both ends of it
 *     take greedy  asks for twice what the device has, is refused, and goes on with less
 *
 * Prints "key=value" lines. Exit status: 0 when it could do its work, 1 when not.
 */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#define EDGE_BYTES ((size_t)1 << 20) /* what is written at each end of a block */
#define MARK       0x5a

struct memory {
    size_t free;
    size_t total;
};

static int say(const char *what, cudaError_t code)
{
    printf("%s_code=%d\n%s=%s\n", what, (int)code, what, cudaGetErrorName(code));
    return code == cudaSuccess;
}

/* Writes both ends of a block and reads one byte of each back. */
static int use(unsigned char *block, size_t bytes)
{
    unsigned char first = 0;
    unsigned char last = 0;
    size_t edge = bytes < EDGE_BYTES ? bytes : EDGE_BYTES;
    return cudaMemset(block, MARK, edge) == cudaSuccess &&
           cudaMemset(block + bytes - edge, MARK, edge) == cudaSuccess &&
           cudaMemcpy(&first, block, 1, cudaMemcpyDeviceToHost) == cudaSuccess &&
           cudaMemcpy(&last, block + bytes - 1, 1, cudaMemcpyDeviceToHost) == cudaSuccess && first == MARK &&
           last == MARK;
}

static int take_and_use(const char *what, size_t bytes)
{
    unsigned char *block = NULL;
    if (!say(what, cudaMalloc((void **)&block, bytes)))
        return 0;
    int good = use(block, bytes);
    printf("%s_bytes=%zu\n%s_used=%s\n", what, bytes, what, good ? "yes" : "no");
    return cudaFree(block) == cudaSuccess && good;
}

static int polite(const struct memory *memory)
{
    printf("asked=%zu\n", memory->free);
    return take_and_use("take", memory->free);
}

static int greedy(const struct memory *memory)
{
    void *block = NULL;
    size_t much = memory->total * 2;
    printf("asked=%zu\n", much);
    cudaError_t code = cudaMalloc(&block, much);
    say("take", code);
    if (code != cudaErrorMemoryAllocation || cudaGetLastError() != cudaErrorMemoryAllocation)
        return 0;
    return take_and_use("less", memory->free / 2);
}

int main(int argc, char **argv)
{
    struct memory memory;
    if (argc != 2) {
        fprintf(stderr, "usage: %s look|polite|greedy\n", argv[0]);
        return 2;
    }
    cudaError_t code = cudaMemGetInfo(&memory.free, &memory.total);
    if (code != cudaSuccess) {
        fprintf(stderr, "take: %s\n", cudaGetErrorString(code));
        return 1;
    }
    printf("total=%zu\nfree=%zu\n", memory.total, memory.free);
    if (!strcmp(argv[1], "look"))
        return 0;
    return (strcmp(argv[1], "greedy") ? polite(&memory) : greedy(&memory)) ? 0 : 1;
}
