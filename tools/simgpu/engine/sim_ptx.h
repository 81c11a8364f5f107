/* sim_ptx: reads from PTX text what the simulator needs: names of kernels and variables, sizes of parameters
 * and of local variables.
 *
 * It reads no instructions: what a kernel does is a host function (sim_kernel.h). Safe on any text.
 */
#ifndef SIMGPU_PTX_H
#define SIMGPU_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTX_MAX_PARAMS 64
#define PTX_MAX_NAME   256

struct sim_ptx_entry {
    char name[PTX_MAX_NAME];
    unsigned int count;
    uint32_t size[PTX_MAX_PARAMS];
    uint32_t offset[PTX_MAX_PARAMS]; /* in one buffer of all parameters */
    uint32_t bytes;                  /* of that buffer */
    uint32_t local;                  /* bytes of .local variables in its body */
};

struct sim_ptx_variable {
    char name[PTX_MAX_NAME];
    uint64_t size;
};

bool sim_ptx_is_text(const char *image); /* does it begin as PTX does? */

/* Finds the next kernel / variable of module scope from *at on, and moves *at behind it. False: no more, or
 * nothing that this reader understands. */
bool sim_ptx_next_entry(const char **at, struct sim_ptx_entry *out);
bool sim_ptx_next_variable(const char **at, struct sim_ptx_variable *out);

#endif
