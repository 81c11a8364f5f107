/* simgpu_support: what the tests of the simulated driver share.
 *
 * Each test program has a simulated machine of its own.
 */
#ifndef TESTS_UNIT_SIMGPU_SUPPORT_H
#define TESTS_UNIT_SIMGPU_SUPPORT_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <unity.h>

#include "tools/simgpu/simgpu.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define OK(call)       TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, (call))
#define IS(code, call) TEST_ASSERT_EQUAL_INT((code), (call))

/* Sets up a simulated machine of this test. Call before the first driver call. */
void sim_machine(const char *cards);

/* Begin a test with a current primary context on device 0; end it and check for leaks. If the test has
 * failed, the program ends. */
void sim_begin(void);
void sim_end(void);

size_t sim_free(void); /* cuMemGetInfo */

/* A gate in a stream: work submitted after it waits until it is opened. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    bool passed; /* the stream has gone through */
};

void gate_init(struct gate *gate);
void gate_put(struct gate *gate, CUstream stream);
void gate_open(struct gate *gate);
bool gate_passed(struct gate *gate);
/* Opens it from another thread after a moment, so that a call that waits for it can return. */
void gate_open_soon(struct gate *gate);
void gate_end(struct gate *gate); /* after all work is done: joins the opener */

/* Runs a function in a forked child and gives back its exit status (128 + signal when one ended it). The
 * test's own process must not have called the driver, unless the test is about that. */
int sim_in_child(int (*function)(void));

/* For children, in which Unity's longjmp must not be used: prints the line and exits if a call returns
 * another code. */
#define MUST(code, call)                                                                                     \
    do {                                                                                                     \
        int got_ = (int)(call);                                                                              \
        if (got_ != (int)(code)) {                                                                           \
            fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, got_, (int)(code));      \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

/* The same as sim_begin() for a child: 0 or 1, after a message. */
int sim_make_current(void);

extern const char sim_ptx[]; /* the built-in kernels, as a PTX program that a real GPU runs too */

#endif
