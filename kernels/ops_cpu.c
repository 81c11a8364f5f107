/* The CPU table: one function per operation that queues a job, generated from OPS_LIST. The arguments are
 * copied into the job, so that the caller may reuse its structure at once. The host function frees the job
 * after it ran; a captured job runs at every launch of the graph and is freed with the table. No lock: one
 * thread submits to a table, and the stream keeps the order. */
#include "kernels/ops_cpu.h"

#include <stdlib.h>
#include <string.h>

struct cpu_job {
    void (*run)(const struct cpu_job *job);
    struct cpu_job *next; /* in the list of captured jobs */
    union {
#define CPU_JOB_FIELD(name) struct op_##name name;
        OPS_LIST(CPU_JOB_FIELD)
#undef CPU_JOB_FIELD
    } args;
};

struct cpu_ops {
    struct ops table;
    ops_cpu_launch_fn launch;
    ops_cpu_capturing_fn capturing;
    struct cpu_job *captured;
};

static void cpu_job_run(void *arg)
{
    struct cpu_job *job = arg;

    job->run(job);
}

static void cpu_job_run_and_free(void *arg)
{
    cpu_job_run(arg);
    free(arg);
}

/* Queues a job with a copy of its arguments. Returns OPS_OUT_OF_MEMORY or the status of the launch. */
static int cpu_queue(struct cpu_ops *cpu, ops_stream stream, void (*run)(const struct cpu_job *job),
                     const void *args, size_t bytes)
{
    int captured = cpu->capturing && cpu->capturing(stream);
    struct cpu_job *job = malloc(sizeof(*job));
    int status;

    if (!job)
        return OPS_OUT_OF_MEMORY;
    job->run = run;
    memcpy(&job->args, args, bytes);
    status = cpu->launch(stream, captured ? cpu_job_run : cpu_job_run_and_free, job);
    if (status) {
        free(job);
    } else if (captured) {
        job->next = cpu->captured;
        cpu->captured = job;
    }
    return status;
}

#define CPU_DEFINE_QUEUE(name)                                                                               \
    static void cpu_run_##name(const struct cpu_job *job)                                                    \
    {                                                                                                        \
        cpu_##name(&job->args.name);                                                                         \
    }                                                                                                        \
                                                                                                             \
    static int cpu_queue_##name(struct ops *ops, ops_stream stream, const struct op_##name *args)            \
    {                                                                                                        \
        return cpu_queue((struct cpu_ops *)ops, stream, cpu_run_##name, args, sizeof(*args));                \
    }
OPS_LIST(CPU_DEFINE_QUEUE)
#undef CPU_DEFINE_QUEUE

static void cpu_close(struct ops *ops)
{
    struct cpu_ops *cpu = (struct cpu_ops *)ops;

    while (cpu->captured) {
        struct cpu_job *job = cpu->captured;

        cpu->captured = job->next;
        free(job);
    }
    free(cpu);
}

int ops_cpu_open(ops_cpu_launch_fn launch, ops_cpu_capturing_fn capturing, struct ops **out)
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
        .capturing = capturing,
    };
    *out = &cpu->table;
    return OPS_OK;
}
