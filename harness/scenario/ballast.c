/* ballast: makes a large GPU a small one by holding the rest of its memory.
 *
 * Reads lines "leave BYTES" from stdin and answers each on stdout with "ready free=BYTES held=BYTES" or
 * "failed REASON". Ends at the end of stdin, and dies with its parent. Holds whole pages of 2 MiB, so free
 * memory may differ from BYTES by that much. Owns no lock. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <cuda_runtime_api.h>

#define PAGE       ((size_t)2 << 20)
#define LARGE      ((size_t)4 << 30) /* size of a block: taking and freeing fewer blocks is faster */
#define BLOCKS_MAX 4096

static void *blocks[BLOCKS_MAX];
static unsigned count;
static size_t held;

static const char *drop(void)
{
    while (count > 0) {
        const cudaError_t error = cudaFree(blocks[--count]);

        if (error)
            return cudaGetErrorString(error);
    }
    held = 0;
    return NULL;
}

/* Takes blocks, smaller ones when a large one does not fit, until at most `leave` bytes are free. */
static const char *take(size_t leave, size_t *left)
{
    size_t size = LARGE, total;

    for (;;) {
        cudaError_t error = cudaMemGetInfo(left, &total);
        if (error)
            return cudaGetErrorString(error);
        if (*left <= leave || *left - leave < PAGE)
            return NULL;
        const size_t need = (*left - leave) / PAGE * PAGE;
        const size_t bytes = need < size ? need : size;
        if (count == BLOCKS_MAX)
            return "too many blocks";
        error = cudaMalloc(&blocks[count], bytes);
        if (error == cudaErrorMemoryAllocation && bytes > PAGE) {
            cudaGetLastError();
            size = bytes / 2 / PAGE * PAGE;
            size = size < PAGE ? PAGE : size;
            continue;
        }
        if (error)
            return cudaGetErrorString(error);
        count++;
        held += bytes;
    }
}

static void answer(size_t leave)
{
    size_t left = 0;
    const char *error = drop();

    if (!error)
        error = take(leave, &left);
    if (!error && left + PAGE < leave)
        error = "the card has less free than that";
    if (error)
        printf("failed %s\n", error);
    else
        printf("ready free=%zu held=%zu\n", left, held);
    fflush(stdout);
}

static bool read_request(const char *line, size_t *leave)
{
    static const char word[] = "leave ";
    char *end;

    if (strncmp(line, word, strlen(word)) != 0)
        return false;
    line += strlen(word);
    errno = 0;
    *leave = (size_t)strtoull(line, &end, 10);
    return !errno && end != line && *end == '\n';
}

static const char usage[] =
    "usage: ballast\n"
    "Makes a large GPU a small one by holding the rest of its memory; scenarios\n"
    "uses it. Reads lines 'leave BYTES' from stdin and answers each with\n"
    "'ready free=BYTES held=BYTES' or 'failed REASON'. Ends at the end of stdin, and\n"
    "when the program that started it ends.\n";

int main(int argc, char **argv)
{
    char line[128];
    size_t leave;

    if (argc > 1) {
        const bool asked = !strcmp(argv[1], "--help");

        fputs(usage, asked ? stdout : stderr);
        return asked ? 0 : 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (fgets(line, sizeof(line), stdin)) {
        if (read_request(line, &leave)) {
            answer(leave);
        } else {
            printf("failed expected: leave BYTES\n");
            fflush(stdout);
        }
    }
    return 0;
}
