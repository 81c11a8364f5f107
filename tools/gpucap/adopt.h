/* adopt: switches by which frameworks leave the caching of device memory to what is below them. Owns no lock.
 */
#ifndef GPUCAP_ADOPT_H
#define GPUCAP_ADOPT_H

#define ADOPT_FORM "pool or async"

/* Sets the documented environment variables of PyTorch, JAX and TensorFlow. `way`: "pool" (or NULL) for
 * memory that they take and free block by block, which gpucap's pool serves; "async" for the driver's
 * stream-ordered pools, which CUDA graphs need. Keeps what the user has set. Returns 0, or CLI_FAILED after a
 * message. */
int adopt_frameworks(const char *way);

#endif
