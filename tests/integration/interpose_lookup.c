/* What a program gets when it looks a name up: our hook for an entry point of the driver, and for anything
 * else the same as without the library, dlerror included. */
#include "interpose_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void setUp(void) {}
void tearDown(void) {}

#define CUDA  "load:libcuda.so.1 "
#define EMPTY "-"

static const struct interpose_run native = {.program = "prog_lookup", .way = EMPTY, .native = true},
                                  wrapped = {.program = "prog_lookup", .way = EMPTY, .cap = "1G"};

static const char *plugin(void)
{
    return interpose_program("libprog_plugin.so");
}

/* The same text with the library as without. */
static void as_native(const char *steps)
{
    struct spawn_result want = interpose_take(&native, steps), got = interpose_take(&wrapped, steps);

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, want.status, want.err);
    TEST_ASSERT_EQUAL_STRING(want.out, got.out);
    TEST_ASSERT_EQUAL_STRING("", got.err);
    TEST_ASSERT_EQUAL_INT(0, got.status);
    spawn_result_free(&want);
    spawn_result_free(&got);
}

static void test_the_drivers_entry_points_are_ours_by_every_look_up(void)
{
    interpose_expect(
        &wrapped, CUDA "in:cuMemAlloc_v2 in:cuInit in:cuGetProcAddress_v2 old:cuMemAlloc_v2",
        "in cuMemAlloc_v2: libgpucap.so\nin cuInit: libgpucap.so\nin cuGetProcAddress_v2: libgpucap.so\n"
        "old cuMemAlloc_v2: libgpucap.so\n");
    interpose_expect(&wrapped,
                     "global:libcuda.so.1 default:cuMemAlloc_v2 next:cuMemAlloc_v2 self:cuMemAlloc_v2",
                     "default cuMemAlloc_v2: libgpucap.so\nnext cuMemAlloc_v2: libgpucap.so\n"
                     "self cuMemAlloc_v2: libgpucap.so\n");
    interpose_expect(
        &wrapped,
        "load:libnvidia-ml.so.1 in:nvmlDeviceGetMemoryInfo in:nvmlDeviceGetMemoryInfo_v2 in:nvmlInit_v2",
        "in nvmlDeviceGetMemoryInfo: libgpucap.so\nin nvmlDeviceGetMemoryInfo_v2: libgpucap.so\n"
        "in nvmlInit_v2: libnvidia-ml.so.1\n");
}

static void test_other_names_resolve_as_without_the_library(void)
{
    char steps[1024];

    as_native(CUDA
              "in:cuDeviceGetCount in:cuMemAddressReserve in:cuNoSuchThing in:getppid in:cuCtxGetDevice");
    as_native("default:getppid next:getppid self:getppid old:getppid "
              "next:gnu_get_libc_version default:main");
    as_native("default:cuNoSuchThing next:cuNoSuchThing self:cuNoSuchThing default:cu default:c default:nv "
              "default:nvml next:n");
    snprintf(
        steps, sizeof(steps),
        "load:%s in:cudnnCreate in:cublasCreate_v2 in:cudaMalloc in:cuSomethingOfOurOwn "
        "in:nvmlSomethingOfOurOwn "
        "in:nvshmem_init in:cudnnDestroy default:cudnnCreate next:cudnnCreate plugin-default:cudnnCreate "
        "plugin-next:cudnnCreate plugin-default:getppid plugin-next:getppid",
        plugin());
    as_native(steps);
}

static void test_without_a_driver_there_is_none(void)
{
    /* glibc's message names the calling library, which is now ours; the rest is the same. */
    struct spawn_result r = interpose_take(
        &wrapped, "default:cuMemAlloc_v2 next:cuInit self:cuInit default:nvmlDeviceGetMemoryInfo old:cuInit");

    TEST_ASSERT_NULL_MESSAGE(strstr(r.out, "libgpucap.so\n"), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "default cuMemAlloc_v2: nowhere error: "), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "undefined symbol: cuMemAlloc_v2\n"), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "next cuInit: nowhere error: "), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "self cuInit: nowhere error: "), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "default nvmlDeviceGetMemoryInfo: nowhere error: "), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "old cuInit: nowhere error: "), r.out);
    TEST_ASSERT_EQUAL_INT(0, r.status);
    spawn_result_free(&r);
}

static void test_a_driver_loaded_for_one_library_alone_is_not_there_for_the_program(void)
{
    struct spawn_result r = interpose_take(&wrapped, CUDA "default:cuInit next:cuInit self:cuInit");

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, strncmp(r.out, "default cuInit: nowhere", 23), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "next cuInit: nowhere"), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "self cuInit: nowhere"), r.out);
    spawn_result_free(&r);
}

static void test_a_library_with_its_own_driver_finds_it(void)
{
    char steps[512];

    snprintf(steps, sizeof(steps),
             "load:%s plugin-default:cuMemAlloc_v2 plugin-next:cuMemAlloc_v2 in:cuMemAlloc_v2 "
             "default:cuDeviceGetCount",
             plugin());
    struct spawn_result want = interpose_take(&native, steps), got = interpose_take(&wrapped, steps);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(want.out, "plugin-default cuMemAlloc_v2: libcuda.so.1\n"), want.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(want.out, "plugin-next cuMemAlloc_v2: libcuda.so.1\n"), want.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(got.out, "plugin-default cuMemAlloc_v2: libgpucap.so\n"), got.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(got.out, "plugin-next cuMemAlloc_v2: libgpucap.so\n"), got.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(got.out, "in cuMemAlloc_v2: libgpucap.so\n"), got.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(got.out, "default cuDeviceGetCount: nowhere"), got.out);
    spawn_result_free(&want);
    spawn_result_free(&got);
}

static void test_a_library_that_only_uses_our_names_keeps_its_own(void)
{
    char steps[512];

    snprintf(steps, sizeof(steps), "load:%s in:cuMemAlloc_v2", interpose_program("libprog_rival.so"));
    struct spawn_result r = interpose_take(&wrapped, steps);
    TEST_ASSERT_EQUAL_STRING("in cuMemAlloc_v2: libprog_rival.so\n", r.out);
    spawn_result_free(&r);
    /* and it is not taken for the driver afterwards */
    snprintf(steps, sizeof(steps), "load:%s in:cuMemAlloc_v2 " CUDA "in:cuMemAlloc_v2 in:cuMemFree_v2",
             interpose_program("libprog_rival.so"));
    r = interpose_take(&wrapped, steps);
    TEST_ASSERT_EQUAL_STRING(
        "in cuMemAlloc_v2: libprog_rival.so\nin cuMemAlloc_v2: libgpucap.so\nin cuMemFree_v2: libgpucap.so\n",
        r.out);
    spawn_result_free(&r);
}

static void test_a_version_that_is_not_there_is_not_found(void)
{
    as_native(
        CUDA
        "in:cuMemAlloc_v2:V1 in:cuInit:GLIBC_2.17 in:cuDeviceGetCount:V1"); /* the driver has no versions */
    as_native("global:libcuda.so.1 default:cuInit:V1 next:cuInit:V1");
    as_native("default:getppid:GLIBC_2.99 next:getppid:GLIBC_2.99 default:getppid:nonsense "
              "default:cuInit2:GLIBC_2.99");
#if defined(__aarch64__)
    as_native("default:getppid:GLIBC_2.17 next:getppid:GLIBC_2.17 default:dlsym:GLIBC_2.99");
#else
    as_native("default:getppid:GLIBC_2.2.5 next:getppid:GLIBC_2.2.5 default:dlsym:GLIBC_2.99");
#endif
}

static void test_dlerror_is_silent_after_a_look_up_that_succeeded(void)
{
    struct spawn_result r = interpose_take(&wrapped, "default:cuNoSuchThing " CUDA
                                                     "in:cuInit in:cuMemAlloc_v2 in:cuDeviceGetCount");

    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(
            r.out,
            "in cuInit: libgpucap.so\nin cuMemAlloc_v2: libgpucap.so\nin cuDeviceGetCount: libcuda.so.1\n"),
        r.out);
    spawn_result_free(&r);
}

/* A program need not read dlerror after each look-up: one that succeeds clears what an earlier one left,
 * whether or not we had to ask the dynamic loader for it. */
static void test_a_look_up_that_succeeds_clears_an_earlier_dlerror(void)
{
    char steps[512];

    snprintf(steps, sizeof(steps), "load:%s in:cuInit plugin-stale:getppid plugin-stale:cuMemAlloc_v2",
             plugin());
    struct spawn_result want = interpose_take(&native, steps), got = interpose_take(&wrapped, steps);
    TEST_ASSERT_EQUAL_STRING("in cuInit: libcuda.so.1\nplugin-stale getppid: libc.so.6\nplugin-stale "
                             "cuMemAlloc_v2: libcuda.so.1\n",
                             want.out);
    TEST_ASSERT_EQUAL_STRING("in cuInit: libgpucap.so\nplugin-stale getppid: libc.so.6\nplugin-stale "
                             "cuMemAlloc_v2: libgpucap.so\n",
                             got.out);
    spawn_result_free(&want);
    spawn_result_free(&got);
}

/* Does the library say at level info that work may go unseen after these steps? Only deferred frees rely on
 * seeing all work. */
static bool trusts_no_more(const char *steps)
{
    static const char *const wordy[] = {"GPUCAP_LOG", "info", "GPUCAP_FREE", "deferred", NULL};
    const struct interpose_run run = {
        .program = "prog_lookup", .way = EMPTY, .cap = "1G", .variables = wordy};
    struct spawn_result r = interpose_take(&run, steps);

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "call cuInit 0\n"), r.out);
    const bool said = strstr(r.err, "is not known to gpucap: work may go unseen") != NULL;
    spawn_result_free(&r);
    return said;
}

#define START         "global:libcuda.so.1 call:cuInit "
#define NOWHERE       "cuNoSuchThingEver"
#define IN_THE_DRIVER "cuSimgpuUnlisted"

static void test_a_name_that_does_not_exist_ends_no_shortcut(void)
{
    TEST_ASSERT_FALSE(trusts_no_more(START "in:" NOWHERE " default:" NOWHERE " next:" NOWHERE " self:" NOWHERE
                                           " old:" NOWHERE " in:" NOWHERE ":V1 proc:" NOWHERE));
}

static void test_another_librarys_name_ends_no_shortcut(void)
{
    char steps[512];

    snprintf(steps, sizeof(steps), START "load:%s in:cuSomethingOfOurOwn plugin-next:cuSomethingOfOurOwn",
             plugin());
    TEST_ASSERT_FALSE(trusts_no_more(steps));
}

static void test_an_entry_point_that_we_do_not_know_ends_the_shortcut(void)
{
    static const char *const ways[] = {"in", "default", "next", "self", "old", "proc"};

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        char steps[256];

        snprintf(steps, sizeof(steps), START "%s:" IN_THE_DRIVER, ways[i]);
        TEST_ASSERT_TRUE_MESSAGE(trusts_no_more(steps), ways[i]);
        snprintf(steps, sizeof(steps), CUDA "call:cuInit %s:" IN_THE_DRIVER, ways[i]);
        if (strcmp(ways[i], "default") && strcmp(ways[i], "next") && strcmp(ways[i], "self"))
            TEST_ASSERT_TRUE_MESSAGE(trusts_no_more(steps), ways[i]);
    }
    as_native(CUDA "in:" IN_THE_DRIVER " proc:" IN_THE_DRIVER " in:" IN_THE_DRIVER ":V1");
}

/* dlopen is hooked, too. Whatever the library does in it, dlerror afterwards is that of the program's call.
 */
static void test_dlerror_after_dlopen_is_the_programs_own(void)
{
    char steps[1024];

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    TEST_IGNORE_MESSAGE("sanitizers refuse RTLD_DEEPBIND");
#endif
    as_native(
        "load:libno_such_thing.so load:/no/such/thing.so deep:libno_such_thing.so deep:/no/such/thing.so "
        "apart:libno_such_thing.so apart:/no/such/thing.so");
    snprintf(steps, sizeof(steps),
             "missing:no_such_name deep:%s error: in:cudnnCreate in:no_such_name error:", plugin());
    as_native(steps);
    snprintf(steps, sizeof(steps), "missing:no_such_name deep:%s error: plugin-stale:getppid", plugin());
    as_native(steps);
}

/* It has the driver among its own dependencies, and libc before us. */
static void test_a_library_loaded_with_deepbind_looks_up_through_us(void)
{
    char steps[512];

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    TEST_IGNORE_MESSAGE("sanitizers refuse RTLD_DEEPBIND");
#endif
    snprintf(steps, sizeof(steps), "deep:%s plugin-default:cuMemAlloc_v2 plugin-next:cuMemAlloc_v2",
             plugin());
    interpose_expect(&wrapped, steps,
                     "plugin-default cuMemAlloc_v2: libgpucap.so\nplugin-next cuMemAlloc_v2: libgpucap.so\n");
}

/* With another library that also defines an entry point, preloaded before ours or after it. */
static void beside_a_rival(bool rival_first)
{
    const struct interpose_run run = {.program = "prog_steps_direct", .way = "direct", .cap = "1G"};
    struct spawn_env *env = interpose_env(&run);
    const char *argv[] = {interpose_program(run.program),
                          "direct",
                          "init",
                          "ctx:0",
                          "fill:alloc:16M",
                          "free-all",
                          "info",
                          NULL};

    interpose_preload(env, "libprog_rival.so", rival_first);
    struct spawn_result r = spawn_run(env, argv, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_EQUAL_STRING(
        "init 0\nctx 0\nfill alloc 2 n=28\nfree-all n=28 failed=0\ninfo 0 free=448 total=1024\n", r.out);
    if (rival_first)
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "rival calls=29\n"), r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_a_library_preloaded_before_us_is_led_to_us(void)
{
    beside_a_rival(true);
}

static void test_a_library_preloaded_after_gpucap_does_not_call_itself(void)
{
    beside_a_rival(false);
}

static void test_a_second_preloaded_library_that_is_called_by_name_is_capped(void)
{
    struct spawn_env *env = interpose_env(&wrapped);
    const char *argv[] = {interpose_program("prog_lookup"),
                          "-",
                          "global:libcuda.so.1",
                          "default:cuMemAlloc_v2",
                          "next:cuMemAlloc_v2",
                          "in:cuMemAlloc_v2",
                          NULL};
    interpose_preload(env, "libprog_rival.so", false);
    struct spawn_result r = spawn_run(env, argv, NULL);
    TEST_ASSERT_EQUAL_STRING("default cuMemAlloc_v2: libprog_rival.so\nnext cuMemAlloc_v2: "
                             "libprog_rival.so\nin cuMemAlloc_v2: libgpucap.so\n",
                             r.out);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void early(bool before)
{
    struct spawn_env *env = interpose_env(&wrapped);
    const char *argv[] = {interpose_program("prog_lookup"), "-", "default:getppid", NULL};

    interpose_preload(env, "libprog_early.so", before);
    struct spawn_result r = spawn_run(env, argv, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_EQUAL_STRING("early next=1 driver=0 nvml=0\n", r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_another_preloads_constructor_may_look_up_before_ours(void)
{
    early(true);
    early(false);
}

/* A library with a global device buffer: all of CUDA happens inside dlopen, under the dynamic loader's lock.
 */
static void constructor(bool exits)
{
    static const char *const uses[] = {"PLUGIN_CUDA", "1", NULL};
    static const char *const leaves[] = {"PLUGIN_CUDA", "1", "PLUGIN_EXIT", "1", NULL};
    const struct interpose_run run = {
        .program = "prog_lookup", .way = EMPTY, .cap = "1G", .variables = exits ? leaves : uses};
    char steps[512];

    snprintf(steps, sizeof(steps), "load:%s in:cudnnCreate", plugin());
    interpose_expect(&run, steps,
                     exits ? "constructor 0 0 0 total=1024\n"
                           : "constructor 0 0 0 total=1024\nin cudnnCreate: libprog_plugin.so\n");
}

static void test_cuda_in_a_constructor_inside_dlopen_does_not_hang(void)
{
    constructor(false);
}

static void test_exit_in_a_constructor_inside_dlopen_does_not_hang(void)
{
    constructor(true);
}

int main(void)
{
    interpose_need_sim();
    UNITY_BEGIN();
    RUN_TEST(test_the_drivers_entry_points_are_ours_by_every_look_up);
    RUN_TEST(test_other_names_resolve_as_without_the_library);
    RUN_TEST(test_without_a_driver_there_is_none);
    RUN_TEST(test_a_driver_loaded_for_one_library_alone_is_not_there_for_the_program);
    RUN_TEST(test_a_library_with_its_own_driver_finds_it);
    RUN_TEST(test_a_library_that_only_uses_our_names_keeps_its_own);
    RUN_TEST(test_a_version_that_is_not_there_is_not_found);
    RUN_TEST(test_dlerror_is_silent_after_a_look_up_that_succeeded);
    RUN_TEST(test_a_look_up_that_succeeds_clears_an_earlier_dlerror);
    RUN_TEST(test_dlerror_after_dlopen_is_the_programs_own);
    RUN_TEST(test_a_library_loaded_with_deepbind_looks_up_through_us);
    RUN_TEST(test_a_name_that_does_not_exist_ends_no_shortcut);
    RUN_TEST(test_another_librarys_name_ends_no_shortcut);
    RUN_TEST(test_an_entry_point_that_we_do_not_know_ends_the_shortcut);
    RUN_TEST(test_a_library_preloaded_before_us_is_led_to_us);
    RUN_TEST(test_a_library_preloaded_after_gpucap_does_not_call_itself);
    RUN_TEST(test_a_second_preloaded_library_that_is_called_by_name_is_capped);
    RUN_TEST(test_another_preloads_constructor_may_look_up_before_ours);
    RUN_TEST(test_cuda_in_a_constructor_inside_dlopen_does_not_hang);
    RUN_TEST(test_exit_in_a_constructor_inside_dlopen_does_not_hang);
    return UNITY_END();
}
