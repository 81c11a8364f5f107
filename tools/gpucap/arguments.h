/* arguments: parses the words after a command with the table of its options, which help, manual page and
 * completion also use. Owns no lock. */
#ifndef GPUCAP_ARGUMENTS_H
#define GPUCAP_ARGUMENTS_H

#include "tools/gpucap/cli.h"

#define ARGUMENTS_OPTIONS 8 /* of one command */

struct arguments {
    const struct cli_command *command;
    bool help;                             /* --help was given */
    const char *values[ARGUMENTS_OPTIONS]; /* by row of the command's table; NULL: not given; "": no value */
    char **operands;                       /* the other words, ended by NULL */
    int count;                             /* of operands */
};

/* Parses the words after the command, argv[0], and moves the operands to the front of argv. Returns 0, or
 * CLI_FAILED after a message on stderr. A command with settings gets all words as operands. */
int arguments_parse(const struct cli_command *command, int argc, char **argv, struct arguments *arguments);

/* Returns the value of an option, or NULL if it was not given. The command must have this option. */
const char *arguments_value(const struct arguments *arguments, const char *option);

#endif
