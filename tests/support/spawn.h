/* spawn: runs a program for a test and hands back everything it said.
 *
 * A test builds an environment (the caller's own, cleared of everything that would steer gpucap or CUDA),
 * adds the simulated GPU, the library and a cap with one line each, runs a program with a time limit, and
 * looks at its output and its end. Must never leave a child or a simulated machine behind. Owns no lock: use
 * it from one thread of a test.
 *
 *     struct spawn_env *env = spawn_env_new();
 *     spawn_sim(env, "1x8G", NULL);
 *     spawn_wrapped(env);
 *     spawn_cap(env, "4G");
 *     struct spawn_result r = spawn_run(env, (const char *[]){"./program", "--flag", NULL}, NULL);
 *     TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
 *     spawn_result_free(&r);
 *     spawn_env_free(env);
 */
#ifndef TESTS_SUPPORT_SPAWN_H
#define TESTS_SUPPORT_SPAWN_H

#include <stdbool.h>
#include <stddef.h>

#define SPAWN_SKIP 77 /* exit status of a test that could not run here; ctest knows it */

struct spawn_env; /* an environment and the options of a run */

struct spawn_options {
    const char *input;  /* what the program reads on stdin; NULL: /dev/null */
    size_t input_len;   /* 0: strlen(input) */
    double timeout_s;   /* 0: 250 s, below ctest's 900 s, so that the test can still print its output */
    const char *folder; /* working directory; NULL: the caller's */
};

struct spawn_result {
    int status;     /* exit status; 128 + signal when a signal ended it; 127 when it could not be started */
    int signal;     /* 0, or the signal that ended it */
    bool timed_out; /* the time limit passed and the whole process group was killed */
    char *out;      /* stdout, always ended by a zero byte */
    size_t out_len;
    char *err; /* stderr, the same; without what stands in `refusals` */
    size_t err_len;
    char *refusals; /* the lines in which the library says that it has refused memory, or waits for long */
};

/* The caller's environment without LD_PRELOAD, LD_LIBRARY_PATH, CUDA_VISIBLE_DEVICES, COLUMNS, LINES,
 * NO_COLOR and every GPUCAP_* but GPUCAP_BUILD, and with a GPUCAP_LEDGER of this test's own. */
struct spawn_env *spawn_env_new(void);
void spawn_env_free(struct spawn_env *env);
void spawn_env_set(struct spawn_env *env, const char *name, const char *value);
void spawn_env_unset(struct spawn_env *env, const char *name);
const char *spawn_env_get(const struct spawn_env *env, const char *name); /* NULL when unset */
/* Puts value in front of what the variable holds, with the separator between. */
void spawn_env_prepend(struct spawn_env *env, const char *name, const char *value, char separator);

/* The simulated GPU in front: LD_LIBRARY_PATH=$GPUCAP_BUILD/sim, GPUCAP_SIM=spec (NULL: "1x8G"),
 * GPUCAP_SIM_ID=id, and a GPUCAP_LEDGER of the machine's. With id NULL the machine is this test process's
 * own: spawn_sim_id(). Its shared files are removed when the test ends. */
void spawn_sim(struct spawn_env *env, const char *spec, const char *id);
const char *spawn_sim_id(void);
void spawn_sim_clean(const char *id); /* removes the files of one simulated machine now */

/* LD_PRELOAD=$GPUCAP_BUILD/libgpucap.so. In a sanitizer build the sanitizer's runtime goes first, as it must,
 * and the leak check of the child is off unless the test has set ASAN_OPTIONS itself: the child may be a
 * foreign program. */
void spawn_wrapped(struct spawn_env *env);
void spawn_cap(struct spawn_env *env, const char *cap); /* GPUCAP_MAX=cap; NULL: none */

/* A path below $GPUCAP_BUILD, in a buffer that lives as long as the process. Ends the test when GPUCAP_BUILD
 * is unset. */
const char *spawn_build_path(const char *relative);

/* Runs argv[0] (searched in PATH when it has no slash) and waits for its end. options may be NULL. Never
 * fails: what went wrong is in the result. Free it. */
struct spawn_result spawn_run(const struct spawn_env *env, const char *const argv[],
                              const struct spawn_options *options);
void spawn_result_free(struct spawn_result *result);

/* The value of the first "key=value" line of a text, in a static buffer; NULL when there is none. */
const char *spawn_value(const char *text, const char *key);

#endif
