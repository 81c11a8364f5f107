/* cli: what the commands of gpucap share: the table of commands, exit statuses, complaints.
 *
 * stdout carries only what the user asked to see; everything else goes to stderr. Owns no lock.
 */
#ifndef GPUCAP_CLI_H
#define GPUCAP_CLI_H

#include <stddef.h>

/* As env(1) and nohup(1) do. */
enum {
    CLI_FAILED = 125,         /* gpucap itself: bad option, bad value, library not found */
    CLI_CANNOT_EXECUTE = 126, /* the program is there but cannot be run */
    CLI_NOT_FOUND = 127,      /* there is no such program */
};

struct cli_command {
    const char *name;
    const char *arguments; /* for the usage line; "" for none */
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */
};

extern const struct cli_command cli_commands[]; /* ended by an entry without a name */

int cmd_run(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_man(int argc, char **argv);
int cmd_version(int argc, char **argv);

/* "gpucap: ..." on stderr; returns CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The candidate that a mistyped word most likely meant; NULL when none is near. */
const char *cli_suggest(const char *word, const char *const *candidates, size_t count);

/* "gpucap WHERE: unknown WHAT 'word' (did you mean ...?)" on stderr; returns CLI_FAILED. */
int cli_unknown(const char *where, const char *what, const char *word, const char *const *candidates,
                size_t count);

/* --sim[=SPEC]: checks the specification and sets GPUCAP_SIM. 0 or CLI_FAILED, with the folder in path. */
int cli_use_sim(const char *where, const char *spec, char *path, size_t size);

#endif
