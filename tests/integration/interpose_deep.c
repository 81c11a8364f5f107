/* Objects that the loader binds past the library's hooks: with RTLD_DEEPBIND the library binds them to its
 * hooks afterwards. Where it cannot, it finds their memory by measuring, and waits for their work. */
#include "interpose_support.h"

#include <stdio.h>
#include <string.h>

void setUp(void) {}
void tearDown(void) {}

#define REFUSED "plugin 2 program 0\n" /* the plugin's own request */
#define FOUND   "plugin 0 program 2\n" /* the request after it */

static struct spawn_result run(const char *mode, const char *how, const char *plugin, const char *what)
{
    const char *const variables[] = {"GPUCAP_FREE", mode, NULL};
    const struct interpose_run settings = {
        .program = "prog_deep", .way = how, .cap = "1G", .variables = variables};
    char steps[512];

    snprintf(steps, sizeof(steps), "%s %s", plugin, what);
    struct spawn_result r = interpose_take(&settings, steps);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    return r;
}

static void expect(const char *how, const char *plugin, const char *what, const char *out, const char *said)
{
    struct spawn_result r = run("strict", how, plugin, what);

    TEST_ASSERT_EQUAL_STRING(out, r.out);
    if (said)
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, said), r.err);
    else
        TEST_ASSERT_EQUAL_STRING("", r.err);
    spawn_result_free(&r);
}

static const char *lazy(void)
{
    return interpose_program("libprog_deep_lazy.so");
}

static const char *now(void)
{
    return interpose_program("libprog_deep_now.so");
}

static const char *runtime(void)
{
    return interpose_program("libprog_deep_runtime.so");
}

static void test_a_plugin_linked_with_the_driver_is_bound_to_us(void)
{
    expect("deep", lazy(), "memory", REFUSED, NULL);
    expect("deep", lazy(), "late", REFUSED, NULL);
    expect("deep", now(), "memory", REFUSED, NULL);
    expect("deep", now(), "late", REFUSED, NULL);
}

static void test_a_plugin_with_the_static_runtime_is_bound_to_us(void)
{
    expect("deep", runtime(), "memory", REFUSED, NULL);
    expect("deep", runtime(), "late", REFUSED, NULL);
}

static void test_a_plugin_that_another_one_loads_is_bound_to_us(void)
{
    expect("nested", now(), "late", REFUSED, NULL);
}

/* Found by the program's RUNPATH, which the real dlopen uses only for a caller in the program. */
static void test_a_plugin_that_is_searched_for_is_found_and_bound_to_us(void)
{
    expect("plain", "libprog_deep_now.so", "memory", REFUSED, NULL);
    expect("deep", "$ORIGIN/libprog_deep_now.so", "late", REFUSED, NULL);
    expect("deep", "libprog_deep_now.so", "memory", REFUSED, NULL);
    expect("deep", "libprog_deep_lazy.so", "late", REFUSED, NULL);
    expect("deep", "libprog_deep_runtime.so", "late", REFUSED, NULL);
}

static void test_calls_that_bypass_the_hooks_are_reported_and_measured(void)
{
    expect("sealed", now(), "memory", FOUND,
           "libprog_deep_now.so is loaded with RTLD_DEEPBIND and cannot be bound");
    expect("sealed", now(), "late", FOUND,
           "libprog_deep_now.so is loaded with RTLD_DEEPBIND and cannot be bound");
    expect("sealed", lazy(), "late", REFUSED, NULL); /* its slots are writable */
}

static void test_a_driver_in_another_namespace_is_reported_and_measured(void)
{
    expect("apart", now(), "memory", FOUND, "libprog_deep_now.so is loaded into a namespace of its own");
    expect("apart", now(), "late", FOUND, "libprog_deep_now.so is loaded into a namespace of its own");
}

/* The constructor runs before the plugin is bound to us. */
static void expect_early(const char *plugin, const char *what, const char *out)
{
    static const char *const variables[] = {"PLUGIN_EARLY", "1", NULL};
    const struct interpose_run settings = {
        .program = "prog_deep", .way = "deep", .cap = "1G", .variables = variables};
    char steps[512];

    snprintf(steps, sizeof(steps), "%s %s", plugin, what);
    interpose_expect(&settings, steps, out);
}

static void test_what_a_constructor_takes_is_counted(void)
{
    expect_early(now(), "alone", "program 2\n");
    expect_early(lazy(), "alone", "program 2\n");
}

/* It has addresses of the driver's functions, which the library cannot detect. */
static void test_a_plugin_whose_constructor_may_have_looked_the_driver_up_is_found_by_measuring(void)
{
    expect_early(runtime(), "late", FOUND);
}

/* The library sees all work of a plugin that is bound to its hooks, so that `deferred` keeps its shortcuts.
 */
static void test_a_plugin_that_is_bound_to_us_ends_no_shortcut(void)
{
    static const char *const variables[] = {"GPUCAP_FREE", "deferred", "GPUCAP_LOG", "info", NULL};
    const struct interpose_run settings = {
        .program = "prog_deep", .way = "deep", .cap = "1G", .variables = variables};
    char steps[512];

    snprintf(steps, sizeof(steps), "%s late", now());
    struct spawn_result r = interpose_take(&settings, steps);
    TEST_ASSERT_EQUAL_STRING(REFUSED, r.out);
    TEST_ASSERT_NULL_MESSAGE(strstr(r.err, "is not known to gpucap"), r.err);
    spawn_result_free(&r);
    snprintf(steps, sizeof(steps), "%s late",
             "libprog_deep_now.so"); /* not bound to us when dlopen returns */
    r = interpose_take(&settings, steps);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "libprog_deep_now.so is not known to gpucap"), r.err);
    spawn_result_free(&r);
}

static void works(const char *mode, const char *how, const char *plugin)
{
    struct spawn_result r = run(mode, how, plugin, "work");

    TEST_ASSERT_EQUAL_STRING("wrong 0\n", r.out);
    spawn_result_free(&r);
}

static void test_no_plugin_writes_to_a_block_that_was_freed_and_handed_out_again(void)
{
    static const char *const modes[] = {"strict", "deferred"};

    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        works(modes[i], "deep", lazy());
        works(modes[i], "deep", now());
        works(modes[i], "deep", "libprog_deep_now.so");
        works(modes[i], "sealed", now());
    }
}

int main(void)
{
    interpose_need_sim();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    fprintf(stderr, "skipped: sanitizers refuse RTLD_DEEPBIND\n");
    return SPAWN_SKIP;
#endif
    UNITY_BEGIN();
    RUN_TEST(test_a_plugin_linked_with_the_driver_is_bound_to_us);
    RUN_TEST(test_a_plugin_with_the_static_runtime_is_bound_to_us);
    RUN_TEST(test_a_plugin_that_another_one_loads_is_bound_to_us);
    RUN_TEST(test_a_plugin_that_is_searched_for_is_found_and_bound_to_us);
    RUN_TEST(test_calls_that_bypass_the_hooks_are_reported_and_measured);
    RUN_TEST(test_a_driver_in_another_namespace_is_reported_and_measured);
    RUN_TEST(test_what_a_constructor_takes_is_counted);
    RUN_TEST(test_a_plugin_whose_constructor_may_have_looked_the_driver_up_is_found_by_measuring);
    RUN_TEST(test_a_plugin_that_is_bound_to_us_ends_no_shortcut);
    RUN_TEST(test_no_plugin_writes_to_a_block_that_was_freed_and_handed_out_again);
    return UNITY_END();
}
