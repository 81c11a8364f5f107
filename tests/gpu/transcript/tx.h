/* tx: what every section of the driver transcript uses; runner.h says what a transcript is. Owns no lock. */
#ifndef TESTS_GPU_TRANSCRIPT_TX_H
#define TESTS_GPU_TRANSCRIPT_TX_H

#include "tx_driver.h"
#include "runner.h"

#include <stddef.h>
#include <stdint.h>

#define TX_MIB       ((size_t)1 << 20)
#define TX_UNTOUCHED 0x5555 /* what an output holds before a call that should fail */

/* Calls drv.fn, prints "section: fn(arguments as written) -> code NAME", gives the code. */
#define CU(fn, ...) tx_rc(#fn "(" #__VA_ARGS__ ")", drv.fn(__VA_ARGS__))

CUresult tx_rc(const char *what, CUresult rc);
const char *tx_code(CUresult rc); /* "2 OUT_OF_MEMORY", in one of a few static buffers */

/* cuInit, device 0, its primary context retained and current. Ends the section when that fails. */
CUdevice tx_start(void);

/* Kernels of kernels.ptx. The module belongs to the current context. */
struct tx_kernels {
    CUmodule module;
    CUfunction spin_ns, spin_flag, fill_u32, copy_u32, check_u32;
};
extern const char tx_ptx[];
/* Also runs each kernel once: later launches then never wait for loading. */
CUresult tx_load_kernels(struct tx_kernels *k);
CUresult tx_fill(const struct tx_kernels *k, CUdeviceptr p, uint32_t value, size_t words, CUstream s);
CUresult tx_copy(const struct tx_kernels *k, CUdeviceptr dst, CUdeviceptr src, size_t words, CUstream s);
/* Counts the wrong words by kernel; -1 when a call failed. */
long tx_check(const struct tx_kernels *k, CUdeviceptr p, uint32_t expected, size_t words);

/* Host-side data checks through cuMemcpyDtoH. */
long tx_wrong_bytes(CUdeviceptr p, uint8_t expected, size_t bytes); /* -1 when the copy failed */

/* A gate: work on a stream that ends only when the host opens it. */
struct tx_gate {
    uint32_t *flag;
    double open_after_s; /* by the helper thread of tx_gate_open_later */
    void *thread;
};
bool tx_gate_new(struct tx_gate *g);
/* Launches the waiting kernel. */
CUresult tx_gate_close(struct tx_gate *g, const struct tx_kernels *k, CUstream s);
void tx_gate_open(struct tx_gate *g);
bool tx_gate_is_open(const struct tx_gate *g);
void tx_gate_open_later(struct tx_gate *g, double seconds); /* from another thread, which join waits for */
void tx_gate_join(struct tx_gate *g);

#define TX_SECTIONS(X)                                                                                       \
    X(init, "before cuInit and without a context")                                                           \
    X(devices, "devices and their properties")                                                               \
    X(primary, "the primary context: retain, release, reset")                                                \
    X(contexts, "contexts of one's own")                                                                     \
    X(alloc, "cuMemAlloc and cuMemFree")                                                                     \
    X(getinfo, "cuMemGetInfo")                                                                               \
    X(pitch, "cuMemAllocPitch")                                                                              \
    X(churn, "many blocks come and go, their bytes stay")                                                    \
    X(managed, "managed memory")                                                                             \
    X(host, "host memory")                                                                                   \
    X(arrays, "arrays")                                                                                      \
    X(vmm, "virtual memory management")                                                                      \
    X(share, "VMM handles retained, exported, imported")                                                     \
    X(pools, "stream-ordered allocation")                                                                    \
    X(attributes, "pointer attributes")                                                                      \
    X(ipc, "legacy IPC with a child process")                                                                \
    X(capture, "what a stream capture forbids")                                                              \
    X(graphs, "captured work, launched")                                                                     \
    X(waits, "which calls wait for running work")                                                            \
    X(events, "events")                                                                                      \
    X(streams, "streams, legacy and per thread")                                                             \
    X(copies, "copies and fills")                                                                            \
    X(kernels, "modules and launches")                                                                       \
    X(libraries, "libraries, their kernels and functions")                                                   \
    X(fork, "a forked child before and after cuInit")                                                        \
    X(threads, "threads with and without a context")                                                         \
    X(visible, "CUDA_VISIBLE_DEVICES")                                                                       \
    X(leave, "ending with memory and work left")                                                             \
    X(lookup, "cuGetProcAddress: versions, flags, unknown names")                                            \
    X(errors, "names and texts of codes")                                                                    \
    X(limits, "limits of a context")

#define X(name, what) void tx_run_##name(void);
TX_SECTIONS(X)
#undef X

int tx_ipc_child(const char *argument); /* the other process of section ipc; its exit status */

#endif
