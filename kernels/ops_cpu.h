/* The CPU reference of the table of operations. It computes on host pointers (simgpu's device pointers are
 * such) and queues its work through a function given at open: cudaLaunchHostFunc in the harness, a direct
 * call in a unit test. Never calls CUDA itself. */
#ifndef KERNELS_OPS_CPU_H
#define KERNELS_OPS_CPU_H

#include "kernels/ops.h"

/* Queues fn(arg) on the stream. If and only if this returns 0, fn runs: once, or, if the stream is being
 * captured, every time the graph is launched. */
typedef int (*ops_cpu_launch_fn)(ops_stream stream, void (*fn)(void *arg), void *arg);

/* Is the stream being captured? Jobs queued meanwhile are kept until the table is closed. */
typedef int (*ops_cpu_capturing_fn)(ops_stream stream);

/* Returns 0 and a table, to be closed with table->close(table), or OPS_OUT_OF_MEMORY. capturing may be NULL
 * if no stream is ever captured. A table must outlive the graphs captured with it. */
int ops_cpu_open(ops_cpu_launch_fn launch, ops_cpu_capturing_fn capturing, struct ops **out);

/* The reference of each operation: cpu_gemm, cpu_sgd, ... It runs in the calling thread and those of
 * cpu_threads.h, and returns when it is done. */
#define OPS_DECLARE_REFERENCE(name) void cpu_##name(const struct op_##name *args);
OPS_LIST(OPS_DECLARE_REFERENCE)
#undef OPS_DECLARE_REFERENCE

#endif
