/* arguments: reads the words behind a command by the table of its options, so that parser, help, manual page
 * and completion cannot differ. Owns no lock.
 */
#ifndef GPUCAP_ARGUMENTS_H
#define GPUCAP_ARGUMENTS_H

#include <stdbool.h>

#define ARGUMENTS_OPTIONS 8 /* of one command */

struct arguments {
    bool helped;                           /* --help was given and answered: nothing is left to do */
    const char *values[ARGUMENTS_OPTIONS]; /* by row of the command's table; NULL: not given; "": no value */
    char **operands;                       /* the other words, ended by NULL */
    int count;                             /* of operands */
};

/* Reads argv by the table of the command argv[0], and moves the operands to the front of argv. 0, or
 * CLI_FAILED with a message on stderr. */
int arguments_parse(int argc, char **argv, struct arguments *arguments);

/* The value of an option, NULL if it was not given. The command has such an option. */
const char *arguments_value(const struct arguments *arguments, const char *command, const char *option);

#endif
