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

/* Number of calls of one entry point, named by its exported symbol ("cuMemAlloc_v2"), and of all of them.
 * Failed calls count. */
unsigned long simgpu_calls(const char *symbol);
unsigned long simgpu_calls_total(void);
void simgpu_reset_calls(void);

/* Replaces the fault script (grammar: engine/sim_fault.h); NULL or "" removes it. Returns 0, or -1 for a
 * script that does not parse: the reason goes to stderr and the old script stays. simgpu_reset_calls()
 * restarts the counts that ":N" in a rule refers to. */
int simgpu_set_fault(const char *script);

/* Bytes of a device that this process holds, as the simulated card counts them: contexts and the driver's own
 * memory included. simgpu_most_used() is the highest value so far. Both return 0 for a device that does not
 * exist. */
unsigned long long simgpu_used(int device);
unsigned long long simgpu_most_used(int device);

/* Number of live driver objects that a clean program would have released: allocations, handles, reservations,
 * mappings, arrays, streams, events, green contexts. */
unsigned long simgpu_leaks(void);

#ifdef __cplusplus
}
#endif

#endif
