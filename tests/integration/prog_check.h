/* prog_check: what the programs that check themselves share: steps that must hold, a table of scenarios, and
 * another process of the same program. They are linked with the driver and know nothing of gpucap, so that
 * each scenario also runs natively and shows what CUDA does. Owns no lock.
 */
#ifndef TESTS_INTEGRATION_PROG_CHECK_H
#define TESTS_INTEGRATION_PROG_CHECK_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MIB ((size_t)1 << 20)

/* Ends the program when the two numbers differ, and says where. */
#define MUST(expected, actual)                                                                               \
    prog_must((long long)(expected), (long long)(actual), #actual, __FILE__, __LINE__)
void prog_must(long long expected, long long actual, const char *what, const char *file, int line);

struct prog_scenario {
    const char *name;
    void (*run)(void);
};

/* Runs argv[1], or names all for --list; with argv[2] it is another process of that scenario, and its socket
 * is argv[2]. */
int prog_main(int argc, char **argv, const struct prog_scenario *scenarios, size_t count);

/* The primary context of a card, retained and current. */
CUcontext prog_context(int card);

/* A green context with 16 multiprocessors of the first card. */
CUgreenCtx prog_green(void);

/* A new pool of the driver's on a card. */
CUmemoryPool prog_pool(int card);

void prog_fill(CUdeviceptr block, unsigned char byte, size_t bytes);
/* Returns the number of bytes that differ. */
long prog_wrong(CUdeviceptr block, unsigned char byte, size_t bytes);

/* Starts NVML: its handle of the first card, and where to find more of it. */
void *prog_nvml(void **library);

/* True in a process that prog_start has started. */
bool prog_is_other(void);
/* True in one that was started without the library. */
bool prog_is_bare(void);
/* A process that runs the same scenario, without the library if `bare`. */
pid_t prog_start(bool bare);
/* Messages between the two processes, and a number as a signal. They end the program if the other process has
 * ended. */
void prog_send(const void *data, size_t bytes);
void prog_receive(void *data, size_t bytes);
void prog_signal(void);
void prog_await(void);
/* True if there is a message, or the other process is gone. */
bool prog_poll(void);
/* Waits for the other process, which must end well. */
void prog_join(pid_t pid);
/* Waits for its end, whatever its status. */
void prog_reap(pid_t pid);

#endif
