/* The CPU table: one queue function per operation, all made from OPS_LIST. The arguments are copied into a
 * job that the host function frees after it ran, so a caller may reuse its structure at once. No lock: the
 * stream orders. */
#include "ops_cpu.h"

#include <stdlib.h>

struct cpu_ops {
    struct ops table;
    ops_cpu_launch_fn launch;
};

struct cpu_job {
    void (*run)(const struct cpu_job *job);
    union {
#define CPU_JOB_FIELD(name) struct op_##name name;
        OPS_LIST(CPU_JOB_FIELD)
#undef CPU_JOB_FIELD
    } args;
};

static void cpu_job_run_and_free(void *arg)
{
    struct cpu_job *job = arg;

    job->run(job);
    free(job);
}

#define CPU_DEFINE_QUEUE(name)                                                                               \
    static void cpu_run_##name(const struct cpu_job *job)                                                    \
    {                                                                                                        \
        cpu_##name(&job->args.name);                                                                         \
    }                                                                                                        \
                                                                                                             \
    static int cpu_queue_##name(struct ops *ops, ops_stream stream, const struct op_##name *args)            \
    {                                                                                                        \
        struct cpu_job *job = malloc(sizeof(*job));                                                          \
        int status;                                                                                          \
                                                                                                             \
        if (!job)                                                                                            \
            return OPS_OUT_OF_MEMORY;                                                                        \
        job->run = cpu_run_##name;                                                                           \
        job->args.name = *args;                                                                              \
        status = ((struct cpu_ops *)ops)->launch(stream, cpu_job_run_and_free, job);                         \
        if (status)                                                                                          \
            free(job);                                                                                       \
        return status;                                                                                       \
    }
OPS_LIST(CPU_DEFINE_QUEUE)
#undef CPU_DEFINE_QUEUE

static void cpu_close(struct ops *ops)
{
    free(ops);
}

int ops_cpu_open(ops_cpu_launch_fn launch, struct ops **out)
{
    struct cpu_ops *cpu = malloc(sizeof(*cpu));

    if (!cpu)
        return OPS_OUT_OF_MEMORY;
    *cpu = (struct cpu_ops){
        .table = {.name = "cpu",
                  .close = cpu_close,
#define CPU_ENTRY(name) .name = cpu_queue_##name,
                  OPS_LIST(CPU_ENTRY)
#undef CPU_ENTRY
        },
        .launch = launch,
    };
    *out = &cpu->table;
    return OPS_OK;
}
