/* Tensors that exist on both sides, on top of kernels_support.h: buffers that know their type and size, and a
 * comparison by the number of terms that were summed. For the tests and measurements of the operations on
 * images. Fails the running test (Unity); never prints otherwise. */
#ifndef TESTS_KERNELS_MIRROR_H
#define TESTS_KERNELS_MIRROR_H

#include <stddef.h>
#include <stdint.h>

#include "kernels_support.h"

struct mirror {
    enum ops_type type;
    size_t count;
    void *host;
    void *device;
};

/* Opens both tables: 0, or the exit status to end with (kernels_open). */
int mirror_open(void);
extern struct ops *mirror_cuda, *mirror_cpu;
extern ops_stream mirror_stream;

/* Workspace on the device, the same for all that ask, kept to the end. */
void *mirror_workspace(size_t bytes);

/* Random values in (-1, 1), or bytes, on both sides. */
struct mirror mirror_values(enum ops_type type, size_t count);
uint8_t *mirror_bytes(size_t count, uint8_t **device);
/* On the device only, for measurements; random bits of small values. */
void *mirror_device(enum ops_type type, size_t count);

/* Waits, and compares the device's side with the host's: they may differ by rounding to the type and by
 * `terms` float roundings of sums whose terms are of size one. */
void mirror_compare(const char *what, const struct mirror *m, double terms);
/* The same with the rounding of another type, for what was computed in it. */
void mirror_compare_as(const char *what, const struct mirror *m, double terms, enum ops_type rounding);

/* Waits, and gives the device's side as bytes; valid until mirror_release. */
void *mirror_download(const struct mirror *m);

/* Frees every buffer; in tearDown and between cases. */
void mirror_release(void);

#endif
