/* simgpu: what the simulated libcuda.so.1 offers beside the driver API, for tests.
 *
 * Link with it, or look the names up with dlsym(): they do not exist in the real driver.
 */
#ifndef SIMGPU_H
#define SIMGPU_H

#ifdef __cplusplus
extern "C" {
#endif

struct simgpu_dim {
    unsigned int x, y, z;
};

/* A kernel NAME of a PTX image runs the program's own function simgpu_kernel_NAME of this type, once per
 * launch, on the stream's worker thread. args points at the parameters, in order. It must not call the
 * driver. */
typedef void simgpu_kernel(void **args, const struct simgpu_dim *grid, const struct simgpu_dim *block);

/* How often an entry point was called (by its exported symbol, "cuMemAlloc_v2"), failed calls included. */
unsigned long simgpu_calls(const char *symbol);
unsigned long simgpu_calls_total(void);
void simgpu_reset_calls(void);

/* Replaces the fault script (grammar: engine/sim_fault.h); NULL or "" ends it. 0, or -1 for a bad one (said
 * on stderr, the old one stays). Counting for ":N" starts anew with simgpu_reset_calls(). */
int simgpu_set_fault(const char *script);

/* Bytes of a device that this process has, contexts and all the driver holds for it included, by the card's
 * own books; and the most that it ever had. 0 for a device that there is not. */
unsigned long long simgpu_used(int device);
unsigned long long simgpu_most_used(int device);

/* Live driver objects that a clean program would have given back: allocations, handles, reservations,
 * mappings, arrays, streams, events, green contexts. */
unsigned long simgpu_leaks(void);

#ifdef __cplusplus
}
#endif

#endif
