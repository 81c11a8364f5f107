/* cli_support: what the tests of the command line share: a private home and scratch folder, one line to run
 * gpucap, and one line to check its end. Owns no lock.
 */
#ifndef TESTS_CLI_SUPPORT_H
#define TESTS_CLI_SUPPORT_H

#include "tests/support/spawn.h"

/* A scratch folder that exists while one test case runs; it is also HOME. */
void cli_set_up(void);
void cli_tear_down(void);
const char *cli_folder(void);

/* A path in the scratch folder, in one of three static buffers. */
const char *cli_path(const char *name);
void cli_write(const char *path, const void *bytes, size_t count, int mode);
void cli_copy(const char *from, const char *to, int mode);

/* The environment of a run: GPUCAP_LIB is a library that does nothing. The test frees it. */
struct spawn_env *cli_env(void);

/* The same with the real library, for programs that start it themselves. */
struct spawn_env *cli_env_real(void);

/* Runs gpucap with these arguments (ended by NULL). With env NULL: a fresh cli_env(). */
struct spawn_result cli_run(struct spawn_env *env, const char *const *arguments);
#define CLI_RUN(env, ...) cli_run(env, (const char *const[]){__VA_ARGS__, NULL})

/* Checks the exit status, and that a text is in what was printed; the message shows all of it. */
void cli_expect_status(int status, const struct spawn_result *result);
void cli_expect_out(const char *text, const struct spawn_result *result);
void cli_expect_err(const char *text, const struct spawn_result *result);

#endif
