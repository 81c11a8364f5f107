/* The type of the option table's rows. Only train_options.c, train_options_table.c and their test include
 * this. */
#ifndef HARNESS_TRAIN_OPTIONS_TABLE_H
#define HARNESS_TRAIN_OPTIONS_TABLE_H

#include "harness/base/train_options.h"

enum option_type {
    OPTION_FLAG,
    OPTION_COUNT,
    OPTION_SIZE, /* bytes, with an optional suffix K, M, G or T */
    OPTION_REAL,
    OPTION_TEXT,
    OPTION_CHOICE,
    OPTION_LIST,
    OPTION_PAIR, /* two of --model's names: --name A B, or --name=A,B */
};

struct option_entry {
    const char *name;
    enum option_type type;
    size_t offset;
    const char *value_name; /* shown in the help; for a choice, its names in the order of its enum */
    const char *initial;    /* the default, parsed as an argument is; NULL: zero */
    double min, max;
    const char *help;
};

extern const struct option_entry train_options_table[];
extern const size_t train_options_table_size;

#endif
