/* litmus: small programs that read wrong bytes if freed memory is used again too early.
 *
 * Each scenario holds a kernel at a gate while the block that it is about to read is freed and a block of the
 * same size is allocated and overwritten. Then the gate opens, and the kernel must still read the old bytes:
 * natively cuMemFree waits for the kernel, and a pool must behave as if it did. Nothing here may hang: a
 * guard thread opens the gate after a while, for calls that are allowed to wait.
 *
 * litmus_scene.c has the blocks, the gate and the second thread, litmus_scenarios.c the scenarios, litmus.c
 * the processes that they run in. Owns one lock, of the list of freed blocks, held for a few instructions.
 */
#ifndef TESTS_GPU_LITMUS_H
#define TESTS_GPU_LITMUS_H

#include "../transcript/tx_driver.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

#define LITMUS_TAKEN_MAX 8

/* What one run works with. */
struct litmus {
    bool unfenced;    /* use a pool without fences, which must fail */
    unsigned hold_us; /* how long the gate stays shut for a call that waits */
    CUdevice device;
    CUcontext context;
    CUstream home, other, third; /* non-blocking; all work before the scenarios has gone to home */
    CUfunction spin_flag, fill_u32, check_u32;
    uint32_t *gate;       /* pinned host memory: 0 is shut */
    uint64_t *mismatches; /* the same: words that a reader did not expect */
    sem_t shut, finish, opened;
    size_t bytes;          /* of this run's blocks */
    uint32_t mine, theirs; /* patterns of this run */
    /* the second thread */
    void (*job)(struct litmus *l);
    sem_t job_given, job_done;
    sem_t freed; /* for a job: the block has been freed */
    CUdeviceptr taken[LITMUS_TAKEN_MAX];
};

struct litmus_scenario {
    const char *name, *what;
    void (*run)(struct litmus *l);
    unsigned batch;    /* runs in one process; fewer if what a pool has learned about streams matters */
    const char *decay; /* GPUCAP_DECAY of its processes, or NULL */
};

extern const struct litmus_scenario litmus_scenarios[];
extern const unsigned litmus_scenario_count;

/* Ends the process with the name of the call if it fails. */
#define LITMUS_OK(call) litmus_ok((call), #call)
void litmus_ok(CUresult result, const char *call);

void litmus_open(struct litmus *l); /* context, streams, kernels, threads */
/* Does one run. Returns true if a reader has read wrong bytes. */
bool litmus_run(struct litmus *l, const struct litmus_scenario *scenario, unsigned turn);

CUdeviceptr litmus_take(struct litmus *l, size_t bytes);
void litmus_give(struct litmus *l, CUdeviceptr block);
/* Kernels on the first litmus_words() words of a block. */
uint64_t litmus_words(const struct litmus *l);
void litmus_fill(struct litmus *l, CUdeviceptr block, uint32_t pattern, CUstream stream);
void litmus_check(struct litmus *l, CUdeviceptr block, uint32_t pattern, CUstream stream);

/* Shuts the gate; the guard opens it after a while. Once in a run. */
void litmus_shut(struct litmus *l);
void litmus_wait_at_gate(struct litmus *l, CUstream stream); /* a kernel that ends when the gate is open */
/* Opens the gate and waits for all work. */
void litmus_finish(struct litmus *l);

/* Gives the second thread something to do, and waits for its end. */
void litmus_start_job(struct litmus *l, void (*job)(struct litmus *l));
void litmus_end_job(struct litmus *l);

#endif
