/* engine_price: runs a program of tests/bench (bench_program.h) through the pool over the fake driver, counts
 * the driver calls, and says what they would cost on an H200. Counts are the same in every run; times are
 * not measured. */
#ifndef GPUCAP_TESTS_ENGINE_PRICE_H
#define GPUCAP_TESTS_ENGINE_PRICE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/bench/bench_program.h"

#define PRICE_ROOM (UINT64_C(139) << 30) /* an H200 */
#define PRICE_PAGE (UINT64_C(2) << 20)

struct price {
    bool completes; /* no allocation was refused */
    uint64_t peak_physical;
    uint64_t created, growth; /* handles; of these, those that raised the peak of what is held */
    uint64_t mapped, unmapped, released;
};

/* Runs a program with so much memory, in a process of its own. Ends the program if that breaks off. With
 * `seconds`, the time that the program would take, memory that is idle for as long as option decay says goes
 * back; with 0 none does. */
struct price price_run(const struct program *program, uint64_t capacity, double seconds);

/* The cost of the calls in seconds: all but growth to the peak, and growth to the peak. */
double price_seconds(const struct price *price);
double price_growth(const struct price *price);

/* The least capacity with which a program completes, from its peak of live bytes up. */
uint64_t price_smallest(const struct program *program);

#endif
