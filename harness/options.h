/* The options of `train`. One table (options.c) drives the parser, its limits and --help: there is no second
 * list. */
#ifndef HARNESS_OPTIONS_H
#define HARNESS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "status.h"

enum { OPTIONS_MAX_HIDDEN = 8 };

/* How a model takes its memory, in the order of the names in the table of options.c. */
enum alloc_mode { ALLOC_NAIVE, ALLOC_ARENA, ALLOC_STATIC };

struct option_list {
    uint64_t count;
    uint64_t item[OPTIONS_MAX_HIDDEN];
};

struct options {
    uint64_t steps;
    uint64_t batch;
    struct option_list hidden;
    uint64_t seed;
    uint64_t device;
    double rate;
    double momentum;
    double fraction;
    uint64_t alloc; /* enum alloc_mode */
    const char *data;
    bool quiet;
    bool help;
};

/* Fills the defaults, then the arguments. On failure the message is printed and says what would be accepted.
 */
enum status options_parse(struct options *options, int argc, char **argv);

void options_print_help(FILE *out);

/* The mode's name in the table and its length, to be printed with %.*s. */
const char *options_alloc_name(enum alloc_mode mode, int *length);

#endif
