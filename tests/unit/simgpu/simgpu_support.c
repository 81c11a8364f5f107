/* simgpu_support: what the tests of the simulated driver share. See simgpu_support.h. */
#include "tests/unit/simgpu/simgpu_support.h"

#include "spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void sim_machine(const char *cards)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("GPUCAP_SIM_FAULT");
    unsetenv("GPUCAP_SIM_NVML");
    setenv("GPUCAP_SIM", cards, 1);
    setenv("GPUCAP_SIM_ID", spawn_sim_id(), 1);
}

void sim_begin(void)
{
    CUcontext context;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

void sim_end(void)
{
    if (Unity.CurrentTestFailed) { /* a stream may stand at a gate for ever, and the gate was on the stack */
        UnityConcludeTest();
        const int failures = UNITY_END();
        fflush(NULL);
        _exit(failures);
    }
    simgpu_set_fault(NULL);
    TEST_ASSERT_EQUAL_UINT64(0, simgpu_leaks());
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuCtxSetCurrent(NULL));
}

int sim_make_current(void)
{
    CUcontext context;

    MUST(0, cuInit(0));
    MUST(0, cuDevicePrimaryCtxRetain(&context, 0));
    MUST(0, cuCtxSetCurrent(context));
    return 0;
}

size_t sim_free(void)
{
    size_t bytes = 0, total;

    OK(cuMemGetInfo(&bytes, &total));
    return bytes;
}

/* ---- gates ---- */

void gate_init(struct gate *gate)
{
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    gate->open = gate->passed = false;
}

static void pass(void *data)
{
    struct gate *gate = data;

    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->passed = true;
    pthread_mutex_unlock(&gate->lock);
}

void gate_put(struct gate *gate, CUstream stream)
{
    OK(cuLaunchHostFunc(stream, pass, gate));
}

void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

bool gate_passed(struct gate *gate)
{
    bool passed;

    pthread_mutex_lock(&gate->lock);
    passed = gate->passed;
    pthread_mutex_unlock(&gate->lock);
    return passed;
}

static pthread_t opener;

static void *open_later(void *data)
{
    struct timespec moment = {.tv_nsec =
                                  10 * 1000 * 1000}; /* far more than a call that does not wait needs */

    nanosleep(&moment, NULL);
    gate_open(data);
    return NULL;
}

void gate_open_soon(struct gate *gate)
{
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&opener, NULL, open_later, gate));
}

void gate_end(struct gate *gate)
{
    if (opener)
        pthread_join(opener, NULL);
    opener = 0;
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
}

/* ---- children ---- */

int sim_in_child(int (*function)(void))
{
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        status = function();
        fflush(NULL);
        _exit(status);
    }
    TEST_ASSERT_GREATER_THAN_INT(0, pid);
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- kernels ---- */

/* Every kernel is a grid-stride loop, so that any launch configuration works. */
#define HEAD                                                                                                 \
    "    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<8>;\n"                                              \
    "    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;\n"        \
    "    mad.lo.u32 %r5, %r1, %r2, %r3; cvt.u64.u32 %d1, %r5; mul.wide.u32 %d2, %r2, %r4;\n"

const char sim_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .b8 table[64];\n"
    ".visible .entry fill_u32(.param .u64 a, .param .u32 v, .param .u64 n)\n{\n" HEAD
    "    ld.param.u64 %d3, [a]; ld.param.u32 %r6, [v]; ld.param.u64 %d4, [n];\n"
    "L: setp.ge.u64 %p1, %d1, %d4; @%p1 ret;\n"
    "    shl.b64 %d5, %d1, 2; add.u64 %d5, %d5, %d3; st.global.u32 [%d5], %r6;\n"
    "    add.u64 %d1, %d1, %d2; bra L;\n}\n"
    ".visible .entry copy_u32(.param .u64 to, .param .u64 from, .param .u64 n)\n{\n" HEAD
    "    ld.param.u64 %d3, [to]; ld.param.u64 %d6, [from]; ld.param.u64 %d4, [n];\n"
    "L: setp.ge.u64 %p1, %d1, %d4; @%p1 ret;\n"
    "    shl.b64 %d5, %d1, 2; add.u64 %d7, %d5, %d6; ld.global.u32 %r6, [%d7];\n"
    "    add.u64 %d5, %d5, %d3; st.global.u32 [%d5], %r6;\n"
    "    add.u64 %d1, %d1, %d2; bra L;\n}\n"
    ".visible .entry check_u32(.param .u64 a, .param .u32 v, .param .u64 n, .param .u64 wrong)\n{\n" HEAD
    "    ld.param.u64 %d3, [a]; ld.param.u32 %r6, [v]; ld.param.u64 %d4, [n]; ld.param.u64 %d6, [wrong];\n"
    "L: setp.ge.u64 %p1, %d1, %d4; @%p1 ret;\n"
    "    shl.b64 %d5, %d1, 2; add.u64 %d5, %d5, %d3; ld.global.u32 %r7, [%d5];\n"
    "    setp.eq.u32 %p1, %r7, %r6; @%p1 bra N; red.global.add.u32 [%d6], 1;\n"
    "N: add.u64 %d1, %d1, %d2; bra L;\n}\n"
    "/* a comment with .entry hidden( in it */\n"
    ".visible .entry own_sum(\n    .param .u64 own_sum_param_0, // where\n    .param .align 8 .b8 pair[16],\n"
    "    .param .u8 small\n)\n{ ret; }\n"
    ".visible .entry nobody_knows(.param .u64 a)\n{ ret; }\n";
