/* arguments: reads the words behind a command by the table of its options, so that parser, help, manual page
 * and completion cannot differ. Owns no lock.
 */
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

/* Reads the words behind the command, argv[0], by its table, and moves the operands to the front of argv. 0,
 * or CLI_FAILED with a message on stderr. A command with settings gets all words as operands. */
int arguments_parse(const struct cli_command *command, int argc, char **argv, struct arguments *arguments);

/* The value of an option, NULL if it was not given. The command has such an option. */
const char *arguments_value(const struct arguments *arguments, const char *option);

#endif
