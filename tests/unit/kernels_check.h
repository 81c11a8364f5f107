/* Shared by the tests of the CPU table: typed buffers with random contents, comparison
 * with results in double precision, and gradients against finite differences. A buffer lives until
 * check_release, which tearDown calls. Fails the running test; never prints otherwise. */
#ifndef TESTS_KERNELS_CHECK_H
#define TESTS_KERNELS_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops_cpu.h"

/* Elements of a type, and the same values in double: what the operation under test reads exactly. */
struct check_buffer {
    enum ops_type type;
    size_t count;
    void *data;
    double *exact;
};

extern const enum ops_type check_types[3];

/* Opens the CPU table; check_release closes it and frees the buffers of a test. */
struct ops *check_open(void);
void check_release(void);

void *check_bytes(size_t bytes); /* zeroed */
double *check_doubles(size_t count);
double check_random(void); /* in (-1, 1) */

/* Random values in (-1, 1), rounded to the type. */
struct check_buffer check_values(enum ops_type type, size_t count);
/* A buffer for results, filled with a value that no result has, so that missing writes are noticed. */
struct check_buffer check_results(enum ops_type type, size_t count);
/* exact = the values that are in data now. */
void check_refresh(struct check_buffer *buffer);

/* Every element of `got` agrees with `expected`: it may differ by rounding to its type, and by float rounding
 * of a sum whose terms have the absolute values summed in `size` (NULL: of |expected|). */
void check_close(const char *what, const struct check_buffer *got, const double *expected,
                 const double *size);

/* gradient[i] agrees with (loss(p + h at i) - loss(p - h at i)) / 2h for every i < count. */
typedef double (*check_loss_fn)(const void *context, const double *values);
void check_gradient(const char *what, check_loss_fn loss, const void *context, double *values, size_t count,
                    const float *gradient);

#endif
