/* interpose_support: runs test programs under libgpucap.so and checks each line of their output. See
 * interpose_support.h. */
#include "interpose_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 256

const char *interpose_program(const char *name)
{
    char relative[128];

    snprintf(relative, sizeof(relative), "tests/integration/%s", name);
    return spawn_build_path(relative);
}

void interpose_need_sim(void)
{
    static const char *const needed[] = {"sim/libcuda.so.1", "sim/libnvidia-ml.so.1", "libgpucap.so"};

    for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
        if (access(spawn_build_path(needed[i]), R_OK)) {
            fprintf(stderr, "skipped: %s is not built\n", needed[i]);
            exit(SPAWN_SKIP);
        }
    }
}

struct spawn_env *interpose_env(const struct interpose_run *run)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, run->cards, NULL);
    if (!run->native)
        spawn_wrapped(env);
    spawn_cap(env, run->cap);
    if (run->unpooled)
        spawn_env_set(env, "GPUCAP_POOL", "off");
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    for (const char *const *v = run->variables; v && *v; v += 2)
        spawn_env_set(env, v[0], v[1]);
    return env;
}

void interpose_preload(struct spawn_env *env, const char *library, bool before)
{
    const char *all = spawn_env_get(env, "LD_PRELOAD"), *own = spawn_build_path("libgpucap.so");
    const char *at = strstr(all, own);
    char both[2048];

    TEST_ASSERT_NOT_NULL(at);
    snprintf(both, sizeof(both), "%.*s%s:%s%s", (int)(at - all), all,
             before ? interpose_program(library) : own, before ? own : interpose_program(library),
             at + strlen(own));
    spawn_env_set(env, "LD_PRELOAD", both);
}

struct spawn_result interpose_take(const struct interpose_run *run, const char *steps)
{
    char *text = strdup(steps);
    const char *argv[WORDS_MAX + 3];
    int n = 0;
    struct spawn_env *env = interpose_env(run);

    TEST_ASSERT_NOT_NULL(text);
    argv[n++] = interpose_program(run->program ? run->program : "prog_steps");
    argv[n++] = run->way ? run->way : "dlsym";
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        TEST_ASSERT_TRUE(n < WORDS_MAX);
        argv[n++] = word;
    }
    argv[n] = NULL;
    struct spawn_result result = spawn_run(env, argv, NULL);
    spawn_env_free(env);
    free(text);
    return result;
}

void interpose_expect(const struct interpose_run *run, const char *steps, const char *out)
{
    struct spawn_result r = interpose_take(run, steps);

    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, r.out);
    TEST_ASSERT_EQUAL_STRING(out, r.out);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
}
