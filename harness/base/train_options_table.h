/* What the parser needs to know of the table of options. Only train_options.c, train_options_table.c and
 * their test include this. */
#ifndef HARNESS_TRAIN_OPTIONS_TABLE_H
#define HARNESS_TRAIN_OPTIONS_TABLE_H

#include "harness/base/train_options.h"

enum option_type {
    OPTION_FLAG,
    OPTION_COUNT,
    OPTION_SIZE, /* a count of bytes, with K, M, G or T */
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
    const char *value_name; /* for the help; a choice lists its values here, in the order of its enum */
    const char *initial;    /* parsed like an argument; NULL is zero */
    double min, max;
    const char *help;
};

extern const struct option_entry train_options_table[];
extern const size_t train_options_table_size;

#endif
