/* What the tests of the CUDA table share: buffers that hold the same bits on the host and on the device, a
 * way to run an operation on both tables, and a comparison that knows how much each type rounds. Behind every
 * buffer is a guard that no operation may touch. One table, one stream, one thread.
 *
 * With KERNELS_QUICK set (compute-sanitizer), kernels_quick() is true and large cases are left out. */
#ifndef TESTS_GPU_KERNELS_SUPPORT_H
#define TESTS_GPU_KERNELS_SUPPORT_H

#include <cuda_runtime_api.h>

#include "kernels/ops_cpu.h"
#include "kernels/types.h"
#include "unity.h"

enum kernels_side { ON_HOST, ON_DEVICE, KERNELS_SIDES };

struct buffer {
    void *at[KERNELS_SIDES];
    size_t bytes;
};

extern struct ops *kernels_ops;
extern cudaStream_t kernels_stream;

/* Runs args of operation `name` on one side; on the device it is only queued. */
#define KERNELS_RUN(name, side, args)                                                                        \
    do {                                                                                                     \
        if ((side) == ON_HOST)                                                                               \
            cpu_##name(&(args));                                                                             \
        else                                                                                                 \
            TEST_ASSERT_EQUAL_INT(0, kernels_ops->name(kernels_ops, kernels_stream, &(args)));               \
    } while (0)

/* Opens libtrain_cuda.so of this build. 0, or the exit status to end with: 77 without a GPU. */
int kernels_open(void);
int kernels_close(int status);
int kernels_quick(void);

/* Buffers live until kernels_free_all, which also checks the guards. Values of kernels_random are in
 * [-scale, scale]. Buffers begin kernels_shift elements after an aligned address. */
extern int kernels_shift;
struct buffer kernels_random(enum ops_type type, size_t count, float scale);
struct buffer kernels_positive(size_t count, float least, float most); /* floats */
struct buffer kernels_tokens(size_t count, int32_t least, int32_t most);
struct buffer kernels_bytes(const void *from, size_t bytes); /* a copy of from, or zeros if it is NULL */
struct buffer kernels_workspace(void);                       /* on the device only: what the table asks for */
void kernels_free_all(void);

/* Copies to the device and waits until it is there: cudaMemcpy may return before (from pageable memory), and
 * kernels_stream waits for no other stream. 0 or an error. */
int kernels_upload(void *to, const void *from, size_t bytes);

float kernels_uniform(void); /* in [-1, 1) */

/* How much two right results of a type may differ, relative to their size: a few roundings. */
double kernels_limit(enum ops_type type);

/* The device's elements against the host's: |difference| <= limit * (|host's| + the root mean square of the
 * host's). */
void kernels_expect_close(const struct buffer *buffer, enum ops_type type, size_t count, double limit,
                          const char *what);

/* The same, where each row of `row` elements has a size of its own: the larger of its root mean square and
 * that of all. */
void kernels_expect_rows_close(const struct buffer *buffer, enum ops_type type, size_t count, size_t row,
                               double limit, const char *what);

/* Every byte equal. */
void kernels_expect_same(const struct buffer *buffer, const char *what);

#endif
