/* place: finds the files that belong to this executable: the preload library and the simulated GPU.
 *
 * Looks beside the executable (a build folder) and under ../lib (an installation). Must never search the
 * current directory or any path from the environment except GPUCAP_LIB. Owns no lock. */
#ifndef GPUCAP_PLACE_H
#define GPUCAP_PLACE_H

#include <stddef.h>

#define PLACE_LIBRARY_NAME "libgpucap.so"
#define PLACE_LIBRARY_ENV  "GPUCAP_LIB"

/* Finds the absolute path of libgpucap.so. Returns 0, or a negative errno (-ENOENT: not found). */
int place_library(char *path, size_t size);
/* The same for another shared object of gpucap, named `name`. */
int place_part(const char *name, char *path, size_t size);
/* Finds the absolute path of the folder with the simulated libcuda.so.1. Returns 0 or a negative errno. */
int place_sim(char *path, size_t size);

#endif
