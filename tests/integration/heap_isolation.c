/* heap_isolation: the library's private jemalloc in programs that configure or contain a jemalloc of their
 * own: neither affects the other. On simgpu. */
#include "spawn.h"
#include "unity.h"

#include <stdio.h>
#include <string.h>

#define CARD "1x2G" /* sanitizers leave little address space */
#define WORST                                                                                                \
    "junk:true,zero:true,stats_print:true,abort:true,abort_conf:true,background_thread:true,"                \
    "confirm_conf:true,dirty_decay_ms:-1,retain:true,narenas:7,no_such_option:1"

void setUp(void) {}

void tearDown(void) {}

static struct spawn_env *new_env(const char *conf, bool wrapped)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, CARD, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    spawn_env_unset(env, "MALLOC_CONF");
    if (wrapped) {
        spawn_wrapped(env);
        spawn_cap(env, "1536M");
    }
    if (conf)
        spawn_env_set(env, "MALLOC_CONF", conf);
    return env;
}

static struct spawn_result run_in(struct spawn_env *env, const char *program, const char *scenario)
{
    char path[128];

    snprintf(path, sizeof(path), "tests/integration/%s", program);
    struct spawn_result r = spawn_run(env, (const char *[]){spawn_build_path(path), scenario, NULL}, NULL);
    spawn_env_free(env);
    spawn_sim_clean(spawn_sim_id());
    return r;
}

static struct spawn_result run(const char *program, const char *scenario, const char *conf, bool wrapped)
{
    return run_in(new_env(conf, wrapped), program, scenario);
}

static void expect(struct spawn_result *r, const char *out)
{
    TEST_ASSERT_EQUAL_STRING("", r->err);
    TEST_ASSERT_EQUAL_INT(0, r->status);
    if (out)
        TEST_ASSERT_EQUAL_STRING(out, r->out);
}

/* Neither the variable nor the file: the same output, and nothing on stderr. */
static void test_settings_for_jemalloc_have_no_effect(void)
{
    struct spawn_result plain = run("prog_small", "settings", NULL, true),
                        worst = run("prog_small", "settings", WORST, true);

    expect(&plain, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(plain.out, "asked 0\n"), plain.out);
    expect(&worst, plain.out);
    spawn_result_free(&plain);
    spawn_result_free(&worst);
}

/* GPUCAP_ZERO=on, in both modes of free. */
static void test_memory_is_zero_though_earlier_work_on_it_has_not_begun(void)
{
    static const char *const modes[] = {"strict", "deferred"};

    for (int i = 0; i < 2; i++) {
        struct spawn_env *env = new_env(NULL, true);
        spawn_env_set(env, "GPUCAP_ZERO", "on");
        spawn_env_set(env, "GPUCAP_FREE", modes[i]);
        struct spawn_result r = run_in(env, "prog_small", "zero");
        expect(&r, "zero\n");
        spawn_result_free(&r);
    }
}

/* The heap has per-thread data, which may be destroyed before the thread's last allocation. */
static void test_the_last_destructors_of_a_thread_may_use_small_blocks(void)
{
    struct spawn_result native = run("prog_small", "last_destructors", NULL, false),
                        wrapped = run("prog_small", "last_destructors", NULL, true);

    expect(&native, "ended\n");
    expect(&wrapped, "ended\n");
    spawn_result_free(&native);
    spawn_result_free(&wrapped);
}

#ifdef GPUCAP_TEST_JEMALLOC
static void test_a_host_with_jemalloc_keeps_its_own(void)
{
    struct spawn_result native = run("prog_small_jemalloc", "own_heap", NULL, false),
                        plain = run("prog_small_jemalloc", "own_heap", NULL, true);

    expect(&native, NULL);
    expect(&plain, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(plain.out, "junk false\nfirst byte any\n"), plain.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(plain.out, "not counted\n"), plain.out);
    spawn_result_free(&native);
    spawn_result_free(&plain);
}

/* The program's settings fill its own memory with junk, but not device memory. */
static void test_a_hosts_settings_for_its_own_jemalloc_are_only_its_own(void)
{
    struct spawn_result plain = run("prog_small_jemalloc", "own_heap", NULL, true),
                        junk = run("prog_small_jemalloc", "own_heap", "junk:true,abort:true", true);
    const char *kept = strstr(plain.out, "kept ");

    expect(&plain, NULL);
    expect(&junk, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(junk.out, "junk true\nfirst byte junk\n"), junk.out);
    TEST_ASSERT_NOT_NULL(kept);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(junk.out, kept), junk.out);
    spawn_result_free(&plain);
    spawn_result_free(&junk);
}
#endif

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_settings_for_jemalloc_have_no_effect);
    RUN_TEST(test_memory_is_zero_though_earlier_work_on_it_has_not_begun);
    RUN_TEST(test_the_last_destructors_of_a_thread_may_use_small_blocks);
#ifdef GPUCAP_TEST_JEMALLOC
    RUN_TEST(test_a_host_with_jemalloc_keeps_its_own);
    RUN_TEST(test_a_hosts_settings_for_its_own_jemalloc_are_only_its_own);
#endif
    return UNITY_END();
}
