/* blind: a cap holds even if the library knows little: without NVML, in a container, on a MIG slice, on a
 * card whose name the driver does not tell. Each promise is a scenario of prog_blind, which compares what the
 * card has given it with what it was told. */
#include <string.h>

#include "spawn.h"
#include "unity.h"

#define CARDS "2x2G;ctx=128M"
#define CAP   "1G"
#define SLICE "73696d6d-6967-4000-8000-000000000000" /* the UUID of simgpu's first one */

void setUp(void) {}

void tearDown(void) {}

struct setting {
    const char *cards, *cap, *nvml, *fault;
    bool container, native;
    const char *line; /* how the one line on stderr begins, if there is one; NULL: none */
    bool must_say;    /* there is one */
};

static struct spawn_env *environment(const struct setting *setting)
{
    struct spawn_env *env = spawn_env_new();

    spawn_sim(env, setting->cards ? setting->cards : CARDS, NULL);
    spawn_env_set(env, "HOME", "/nonexistent"); /* no user's own settings */
    if (!setting->native) {
        spawn_wrapped(env);
        spawn_cap(env, setting->cap ? setting->cap : CAP);
    }
    if (setting->nvml)
        spawn_env_set(env, "GPUCAP_SIM_NVML", setting->nvml);
    if (setting->fault)
        spawn_env_set(env, "GPUCAP_SIM_FAULT", setting->fault);
    if (setting->container)
        spawn_env_set(env, "PROG_CONTAINER", "1");
    return env;
}

/* At most one line, and the one that is expected. */
static void check_line(const struct setting *setting, const char *text)
{
    const char *end = strchr(text, '\n');

    if (!*text && !setting->must_say)
        return;
    TEST_ASSERT_TRUE_MESSAGE(setting->line && !strncmp(text, setting->line, strlen(setting->line)), text);
    TEST_ASSERT_TRUE_MESSAGE(end && !end[1], text);
}

static void run(const char *scenario, const struct setting *setting)
{
    struct spawn_env *env = environment(setting);
    struct spawn_result r = spawn_run(
        env, (const char *[]){spawn_build_path("tests/integration/prog_blind"), scenario, NULL}, NULL);

    spawn_env_free(env);
    check_line(setting, r.err);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, setting->nvml ? setting->nvml : scenario);
    spawn_result_free(&r);
}

/* Runs the scenario with each thing that NVML can lack. */
static void every_blindness(const char *scenario)
{
    static const char *const views[] = {"absent", "no-list", "no-bytes"};
    struct setting setting = {.line = "gpucap: NVML does not report"};

    run(scenario, &(struct setting){.native = true});
    run(scenario, &(struct setting){.cap = CAP}); /* with a complete NVML */
    for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++) {
        setting.nvml = views[i];
        run(scenario, &setting);
    }
}

static void test_stream_ordered_memory_is_held_to_the_cap_without_nvml(void)
{
    every_blindness("async");
}

static void test_memory_of_graphs_is_held_to_the_cap_without_nvml(void)
{
    every_blindness("graphs");
}

static void test_memory_of_other_kinds_is_held_to_the_cap_without_nvml(void)
{
    every_blindness("blocks");
    every_blindness("handles");
    every_blindness("arrays");
}

static void test_what_is_freed_can_be_had_again_without_nvml(void)
{
    every_blindness("again");
}

static void test_threads_do_not_pass_the_cap_together_without_nvml(void)
{
    every_blindness("threads");
}

static void test_a_process_among_strangers_is_held_to_the_cap(void)
{
    struct setting alone = {.nvml = "pids=100000", .container = true};
    struct setting several = {
        .nvml = "pids=100000,newcomers=2", .container = true, .line = "gpucap: NVML does not report"};

    run("async", &alone);
    run("async", &several);
    run("graphs", &several);
    run("again", &several);
}

/* NVML also counts as blind if it should list our process and does not. */
static void test_a_process_that_nvml_does_not_list_still_counts(void)
{
    run("async", &(struct setting){.nvml = "pids=100000", .line = "gpucap: NVML does not report"});
}

static void test_another_process_is_not_taken_for_this_one(void)
{
    run("stranger", &(struct setting){.native = true});
    run("stranger",
        &(struct setting){.nvml = "pids=100000", .container = true, .line = "gpucap: NVML does not report"});
    run("stranger", &(struct setting){.line = "gpucap: NVML does not report"});
}

static void test_a_rule_that_names_a_slice_holds_for_it(void)
{

    struct setting setting = {.cards = "1x2G/mig;ctx=128M", .cap = "none,MIG-" SLICE "=512M"};

    run("slice", &setting);
}

static void test_nothing_is_granted_on_a_card_that_has_no_name(void)
{
    static const char *const faults[] = {"cuCtxGetDevice:*=999", "cuDeviceGetUuid_v2:*=999",
                                         "cuDeviceTotalMem_v2:*=999"};

    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        run("unnamed", &(struct setting){.fault = faults[i],
                                         .line = "gpucap: the driver does not report the card",
                                         .must_say = true});
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_stream_ordered_memory_is_held_to_the_cap_without_nvml);
    RUN_TEST(test_memory_of_graphs_is_held_to_the_cap_without_nvml);
    RUN_TEST(test_memory_of_other_kinds_is_held_to_the_cap_without_nvml);
    RUN_TEST(test_what_is_freed_can_be_had_again_without_nvml);
    RUN_TEST(test_threads_do_not_pass_the_cap_together_without_nvml);
    RUN_TEST(test_a_process_among_strangers_is_held_to_the_cap);
    RUN_TEST(test_a_process_that_nvml_does_not_list_still_counts);
    RUN_TEST(test_another_process_is_not_taken_for_this_one);
    RUN_TEST(test_a_rule_that_names_a_slice_holds_for_it);
    RUN_TEST(test_nothing_is_granted_on_a_card_that_has_no_name);
    return UNITY_END();
}
