/* options: every setting of gpucap, in one table that the parser, `gpucap run`, --help and the manual page
 * read.
 *
 * A value comes from the environment, else from the user's file, else from the administrator's file, else
 * from the table. `max` in the administrator's file is also a ceiling that no other setting can exceed. No
 * locks: the table is constant, and a struct options belongs to its caller.
 */
#ifndef GPUCAP_OPTIONS_H
#define GPUCAP_OPTIONS_H

#include "interpose/settings/rules.h"

#define OPTIONS_ADMIN_FILE       "/etc/gpucap.conf"
#define OPTIONS_USER_FILE        ".config/gpucap.conf" /* below the home folder */
#define OPTIONS_FILE_MAX         (64 * 1024)
#define OPTIONS_VALUE_MAX        1024
#define OPTIONS_ERROR_MAX        512
#define OPTIONS_PATH_MAX         512
#define OPTIONS_NAME_MAX         64                   /* of a group, terminated; as LEDGER_NAME */
#define OPTIONS_RESERVE_STANDARD (UINT64_C(64) << 20) /* the default of `reserve` in bytes */

enum options_log { OPTIONS_LOG_QUIET, OPTIONS_LOG_ERROR, OPTIONS_LOG_INFO };

enum options_source { OPTIONS_DEFAULT, OPTIONS_ADMIN, OPTIONS_USER, OPTIONS_ENVIRONMENT };

/* Columns: name in files and options; environment variable; default; accepted form; what it does. */
#define OPTIONS_TABLE(X)                                                                                     \
    X(MAX, "max", "GPUCAP_MAX", "none", RULES_FORM,                                                          \
      "Device memory that the program may use, the CUDA context's own included.")                            \
    X(EACH, "each", "GPUCAP_EACH", "none", RULES_FORM,                                                       \
      "Device memory that each process of a job may use; without a job the smaller of max and each "         \
      "applies.")                                                                                            \
    X(GROUP, "group", "GPUCAP_GROUP", "none", "a name of letters, digits, '.', '_' and '-'",                 \
      "Job whose processes share max. gpucap run makes one for the processes that it starts.")               \
    X(LEDGER, "ledger", "GPUCAP_LEDGER", "auto", "a folder such as /run/gpucap, auto or off",                \
      "Folder through which the processes of a job find each other; auto is a private folder of the user.")  \
    X(WAIT, "wait", "GPUCAP_WAIT", "0", "seconds such as 30 or 30s, or off",                                 \
      "How long a request waits for memory of its job, or of a full card, before it is refused.")            \
    X(MIN, "min", "GPUCAP_MIN", "none", RULES_FORM,                                                          \
      "Part of a card that other jobs leave to this one while it uses less. They may keep idle memory "      \
      "there, and give it back when this job needs it.")                                                     \
    X(HIGH, "high", "GPUCAP_HIGH", "none", RULES_FORM,                                                       \
      "While a job, or a program without one, uses more than this, it gives idle memory back at once.")      \
    X(RESERVE, "reserve", "GPUCAP_RESERVE", "64M", SIZE_FORM,                                                \
      "Part of max that allocations leave to the driver's own growth: modules, streams, stacks.")            \
    X(POOL, "pool", "GPUCAP_POOL", "on", "on or off",                                                        \
      "Serve cuMemAlloc from a pool that reuses memory and defragments it.")                                 \
    X(FREE, "free", "GPUCAP_FREE", "strict", "strict or deferred",                                           \
      "Whether a free waits for the device's work, as cudaFree does (strict), or returns at once "           \
      "(deferred). In both modes memory is reused only after the work that uses it.")                        \
    X(SLACK, "slack", "GPUCAP_SLACK", "2%", "a percentage such as 2%",                                       \
      "How much more a pool may hold than its live blocks recently took at their peak. At that size it "     \
      "moves free chunks together or waits for work, and grows only if that is not enough. With 16 GiB or "  \
      "more left to allocate the share is at least 8%, and the pool also grows if moving chunks would take " \
      "too much time.")                                                                                      \
    X(DECAY, "decay", "GPUCAP_DECAY", "5", "seconds such as 5 or 0.5, 0 for at once, or off",                \
      "How long free memory stays in the pool before it goes back to the driver.")                           \
    X(EARLY, "early", "GPUCAP_EARLY", "90%", "a percentage such as 90%",                                     \
      "When more than this share of a pool is free, the free part goes back after a quarter of decay.")      \
    X(ZERO, "zero", "GPUCAP_ZERO", "off", "on or off", "Clear reused memory before a program gets it.")      \
    X(GUARD, "guard", "GPUCAP_GUARD", "off", "on or off",                                                    \
      "Unmap the space around blocks, and freed blocks, so that overruns and uses after free fault; each "   \
      "block takes whole pages of 2 MiB.")                                                                   \
    X(FILL, "fill", "GPUCAP_FILL", "off", "on or off",                                                       \
      "Fill fresh blocks with bytes 0xCB (with zero=on: 0) and freed ones with 0xDF; every free waits, as "  \
      "with free=strict.")                                                                                   \
    X(RECORD, "record", "GPUCAP_RECORD", "off", "a file such as run-%p.gpucap, or off",                      \
      "Record all events of device memory in this file, for gpucap why, view, page, summary, export and "    \
      "replay; %p is the process id, %h the host.")                                                          \
    X(STACKS, "stacks", "GPUCAP_STACKS", "off", "on or off",                                                 \
      "Also record the call stack of each allocation, as far as functions keep frame pointers.")             \
    X(NVTX, "nvtx", "GPUCAP_NVTX", "off", "on or off",                                                       \
      "Tag what a thread allocates with the innermost NVTX range that it has pushed, unless gpucap_tag set " \
      "a tag; gpucap run sets NVTX_INJECTION64_PATH for it.")                                                \
    X(NUDGE, "nudge", "GPUCAP_NUDGE", "off", "on or off",                                                    \
      "When another process needs memory and this one has too little idle, make PyTorch in this process "    \
      "call torch.cuda.empty_cache().")                                                                      \
    X(LOG, "log", "GPUCAP_LOG", "error", "quiet, error or info",                                             \
      "What gpucap prints on stderr: nothing, faults and refusals, or also what the pool did.")

enum options_id {
#define X(id, ...) OPTIONS_##id,
    OPTIONS_TABLE(X)
#undef X
        OPTIONS_COUNT
};

struct options_entry {
    const char *name, *variable, *standard, *form, *help;
};
extern const struct options_entry options_table[OPTIONS_COUNT];

struct options {
    struct rules max;
    struct rules ceiling; /* the administrator's max */
    struct rules each;
    struct rules min, high;
    char group[OPTIONS_NAME_MAX];  /* empty: none */
    char ledger[OPTIONS_PATH_MAX]; /* empty: the user's own; "off": none */
    double wait;                   /* seconds */
    struct size_value reserve;
    bool pool;
    bool deferred;
    struct size_value slack; /* a percentage */
    double decay;            /* seconds; negative: off */
    struct size_value early; /* a percentage */
    bool zero;
    bool guard;
    bool fill;
    char record[OPTIONS_PATH_MAX]; /* empty: none */
    bool stacks;
    bool nvtx;
    bool nudge;
    enum options_log log;
    enum options_source source[OPTIONS_COUNT];
};

/* Where options are read from. A test passes its own. */
struct options_places {
    const char *(*getenv)(const char *variable);
    const char *user_file;  /* NULL: none */
    const char *admin_file; /* NULL: none */
    char *const *variables; /* the environment or NULL; an unknown GPUCAP_ name in it is an error */
};

/* Returns the row of a name ("max"), or -1. */
int options_find(const char *name, size_t length);

/* Sets one option. Returns 0, or -EINVAL with a sentence in `error` that names value and accepted form. */
int options_set(struct options *options, int id, const char *value, enum options_source source,
                char error[OPTIONS_ERROR_MAX]);

/* Sets all options to their defaults. */
void options_init(struct options *options);

/* Loads all options from all places. Returns 0, or -EINVAL with a sentence in `error`. Never leaves a
 * half-loaded result that is less strict. */
int options_load(struct options *options, const struct options_places *places, char error[OPTIONS_ERROR_MAX]);

/* Parses the text of a configuration file ("name = value" lines, # comments). `file` is for messages. In the
 * administrator's, the max of a section "[user NAME]" or "[group NAME]" replaces that of the lines before the
 * first section, for those people; a user's section counts before a group's, and the first group's before
 * later ones. */
int options_parse_file(struct options *options, const char *text, const char *file,
                       enum options_source source, char error[OPTIONS_ERROR_MAX]);

/* Returns this process's places. Writes the path of the user's file to `path`. */
struct options_places options_places_here(char path[OPTIONS_PATH_MAX]);

/* Loads all options from this process's places, as options_load does. */
int options_load_here(struct options *options, char error[OPTIONS_ERROR_MAX]);

/* Returns what a process may use of a card under all limits if it does not share max. */
uint64_t options_limit(const struct options *options, int ordinal, const char *uuid, uint64_t total);
/* Return what a process of a job may use by itself, and what the job may use; at most the card's total. */
uint64_t options_own_limit(const struct options *options, int ordinal, const char *uuid, uint64_t total);
uint64_t options_job_limit(const struct options *options, int ordinal, const char *uuid, uint64_t total);

/* Returns true if any card of this process could be limited. */
bool options_any_limit(const struct options *options);

#endif
