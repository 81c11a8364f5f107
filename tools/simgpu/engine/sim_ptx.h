/* sim_ptx: reads names of kernels and variables, and sizes of parameters and local variables, from PTX text.
 *
 * It ignores instructions: a host function does the kernel's work (sim_kernel.h). Safe on any text.
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
    uint32_t offset[PTX_MAX_PARAMS]; /* in a buffer that holds all parameters */
    uint32_t bytes;                  /* size of that buffer */
    uint32_t local;                  /* bytes of .local variables in the body */
};

struct sim_ptx_variable {
    char name[PTX_MAX_NAME];
    uint64_t size;
};

bool sim_ptx_is_text(const char *image); /* does the image begin like PTX? */

/* Finds the next kernel, or variable of module scope, from *at on and moves *at behind it. Returns false if
 * there is none, or if this reader does not understand the text. */
bool sim_ptx_next_entry(const char **at, struct sim_ptx_entry *out);
bool sim_ptx_next_variable(const char **at, struct sim_ptx_variable *out);

#endif
