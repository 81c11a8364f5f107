/* adopt: sets the variables with which frameworks leave the caching of device memory to gpucap or the driver.
 * Owns no lock. */
#ifndef GPUCAP_ADOPT_H
#define GPUCAP_ADOPT_H

#define ADOPT_FORM "pool or async"

/* Sets the documented environment variables of PyTorch, JAX and TensorFlow. `way`: "pool" (or NULL): they
 * take and free block by block, and gpucap's pool serves them; "async": they use the driver's stream-ordered
 * pools, which CUDA graphs need. Keeps variables that the user has set. Returns 0, or CLI_FAILED after a
 * message. */
int adopt_frameworks(const char *way);

#endif
