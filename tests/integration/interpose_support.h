/* interpose_support: runs prog_steps and other programs under libgpucap.so on a simulated machine of their
 * own, and checks every line of their output. Owns no lock. */
#ifndef TESTS_INTEGRATION_INTERPOSE_SUPPORT_H
#define TESTS_INTEGRATION_INTERPOSE_SUPPORT_H

#include <stdbool.h>
#include <unity.h>

#include "spawn.h"

/* One run. What is NULL has a default: the program prog_steps, way "dlsym", one card of 8 GiB, no cap, no
 * more variables. */
struct interpose_run {
    const char *program; /* below tests/integration/ of the build folder */
    const char *way;
    const char *cards;
    const char *cap;
    const char *const *variables; /* name, value, name, value, ..., NULL */
    bool native;                  /* without the library */
    bool unpooled;                /* GPUCAP_POOL=off: every call reaches the driver */
};

/* Runs `steps` (blank-separated) and checks stdout, exit status 0 and an empty stderr. */
void interpose_expect(const struct interpose_run *run, const char *steps, const char *out);

/* The same, and hands the result back unchecked; free it. */
struct spawn_result interpose_take(const struct interpose_run *run, const char *steps);

/* An environment with the simulated machine and, unless told otherwise, the library. */
struct spawn_env *interpose_env(const struct interpose_run *run);

/* Preloads a library of this folder too, before ours or behind it. */
void interpose_preload(struct spawn_env *env, const char *library, bool before);

/* The path of a program of this folder. */
const char *interpose_program(const char *name);

/* Ends the test with "skipped" if the simulated driver or the library is not built. */
void interpose_need_sim(void);

#endif
