/* cli: shared by the commands of gpucap: the table of commands, exit statuses, error messages.
 *
 * Only the requested output goes to stdout; everything else goes to stderr. Owns no lock. */
#ifndef GPUCAP_CLI_H
#define GPUCAP_CLI_H

#include <stdbool.h>
#include <stddef.h>

/* As env(1) and nohup(1) do. */
enum {
    CLI_UNDONE = 1,           /* the command ran, but did not find or could not do what the user requested */
    CLI_FAILED = 125,         /* gpucap itself: bad option, bad value, library not found */
    CLI_CANNOT_EXECUTE = 126, /* the program exists but cannot be executed */
    CLI_NOT_FOUND = 127,      /* there is no such program */
};

struct arguments;

struct cli_option {
    const char *name;  /* without dashes */
    const char *value; /* name of the value, such as SIZE; NULL: the option takes none */
    bool optional;     /* the value may be left out */
    const char *help;
};

/* The kind of a command's operands; for completion. */
enum cli_operands {
    CLI_NOTHING,
    CLI_PROGRAM,
    CLI_PROCESS,
    CLI_JOB,
    CLI_REFUSED,
    CLI_RECORDED,
    CLI_COMMAND,
    CLI_SHELL,
    CLI_FILE
};

struct cli_command {
    const char *name;
    const char *arguments; /* for the usage line; "" for none */
    const char *summary;
    const char *details;              /* a paragraph for `gpucap help COMMAND` and the manual page; or NULL */
    const struct cli_option *options; /* ended by an entry without a name; or NULL */
    enum cli_operands operands;
    bool settings; /* also takes every option of the library, and parses its words itself */
    int (*run)(const struct arguments *arguments); /* returns the exit status */
};

extern const struct cli_command cli_commands[]; /* ended by an entry without a name */

int cmd_run(const struct arguments *arguments);
int cmd_doctor(const struct arguments *arguments);
int cmd_ps(const struct arguments *arguments);
int cmd_top(const struct arguments *arguments);
int cmd_set(const struct arguments *arguments);
int cmd_trim(const struct arguments *arguments);
int cmd_why(const struct arguments *arguments);
int cmd_record(const struct arguments *arguments);
int cmd_summary(const struct arguments *arguments);
int cmd_page(const struct arguments *arguments);
int cmd_view(const struct arguments *arguments);
int cmd_export(const struct arguments *arguments);
int cmd_replay(const struct arguments *arguments);
int cmd_completion(const struct arguments *arguments);
int cmd_help(const struct arguments *arguments);
int cmd_man(const struct arguments *arguments);
int cmd_version(const struct arguments *arguments);

/* Prints the help of a command. Returns 0, or CLI_FAILED after a message if there is no such command. */
int cli_help(const char *command);

/* Prints "gpucap: ..." on stderr. Returns CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns the candidate nearest to a mistyped word, or NULL if none is near. */
const char *cli_suggest(const char *word, const char *const *candidates, size_t count);

/* Prints "gpucap WHERE: unknown WHAT 'word' (did you mean ...?)" on stderr, or the candidates if they are
 * few. Returns CLI_FAILED. */
int cli_unknown(const char *where, const char *what, const char *word, const char *const *candidates,
                size_t count);

/* --sim[=SPEC]: checks the specification and sets GPUCAP_SIM. Returns 0 with the folder in `path`, or
 * CLI_FAILED. */
int cli_use_sim(const char *where, const char *spec, char *path, size_t size);

#endif
