/* The cap under whole programs: every way to find the driver, every kind of memory, every way to ask how much
 * is free. Cards of 8 GiB, on which simgpu's context takes 512 MiB; the default reserve is 64 MiB: with a cap
 * of 1 GiB, 448 MiB are left to the program. */
#include "interpose_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void setUp(void) {}
void tearDown(void) {}

static void fill_through(const char *program, const char *way)
{
    const struct interpose_run run = {.program = program, .way = way, .cap = "1G"};

    interpose_expect(&run,
                     "init total:0 ctx:0 info fill:alloc:16M held greedy alloc:1 free-all info greedy held",
                     "init 0\n"
                     "total 0 1024\n"
                     "ctx 0\n"
                     "info 0 free=448 total=1024\n"
                     "fill alloc 2 n=28\n"
                     "held 960\n"
                     "greedy 1\n" /* nothing is free, and a request for nothing is no request */
                     "alloc 2\n"
                     "free-all n=28 failed=0\n"
                     "info 0 free=448 total=1024\n"
                     "greedy 0\n"
                     "held 960\n");
}

static void test_the_cap_holds_for_a_program_linked_with_the_driver(void)
{
    fill_through("prog_steps_direct", "direct");
}

static void test_the_cap_holds_for_a_program_that_uses_dlsym(void)
{
    fill_through("prog_steps", "dlsym");
}

static void test_the_cap_holds_for_a_program_that_looks_everywhere(void)
{
    fill_through("prog_steps", "default");
}

static void test_the_cap_holds_for_a_program_that_uses_cugetprocaddress(void)
{
    fill_through("prog_steps", "proc");
}

static void test_the_cap_holds_for_a_program_that_uses_the_first_cugetprocaddress(void)
{
    fill_through("prog_steps", "proc1");
}

static void test_the_cap_holds_for_a_program_with_per_thread_streams(void)
{
    fill_through("prog_steps", "ptsz");
}

static void runtime(const char *program)
{
    const struct interpose_run run = {.program = program, .way = "-", .cap = "1G"};

    interpose_expect(&run, "",
                     "free=448 total=1024\n"
                     "properties total=1024\n"
                     "malloc until 2 n=28 last=2 then=0\n"
                     "freed failed=0\n"
                     "greedy 0\n"
                     "async 2\n");
}

static void test_the_cap_holds_for_a_program_with_the_shared_runtime(void)
{
    runtime("prog_runtime_shared");
}

static void test_the_cap_holds_for_a_program_with_the_static_runtime(void)
{
    runtime("prog_runtime_static");
}

static void fill_kind(const char *kind, int least, int most)
{
    const struct interpose_run run = {.cap = "1G", .unpooled = true};
    char steps[256], line[64];

    snprintf(steps, sizeof(steps), "init watch ctx:0 fill:%s held free-all sync info peak leaks fill:%s",
             kind, kind);
    struct spawn_result r = interpose_take(&run, steps);
    const char *n = strstr(r.out, " 2 n=");
    const char *peak = strstr(r.out, "peak ");
    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(n, r.out);
    TEST_ASSERT_TRUE_MESSAGE(atoi(n + 5) >= least && atoi(n + 5) <= most, r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "info 0 free=448 total=1024\n"),
                                 r.out); /* all of it came back */
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "leaks 0\n"), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(peak, r.out);
    TEST_ASSERT_TRUE_MESSAGE(atoi(peak + 5) <= 1024, r.out);
    /* and as much can be had again */
    snprintf(line, sizeof(line), " 2 n=%d\n", atoi(n + 5));
    const char *again = strstr(n + 1, line);
    TEST_ASSERT_NOT_NULL_MESSAGE(again, r.out);
    spawn_result_free(&r);
}

static void test_pitched_memory_counts(void)
{
    fill_kind("pitch:65536:512", 14, 14);
    fill_kind("pitch:1:65536", 14, 14); /* 512 bytes a row */
}

static void test_managed_memory_counts(void)
{
    fill_kind("managed:32M", 14, 14);
}

static void test_stream_ordered_memory_counts(void)
{
    fill_kind("async:32M", 14, 14);
}

static void test_physical_memory_counts(void)
{
    fill_kind("create:32M:0", 14, 14);
}

static void test_arrays_count(void)
{
    fill_kind("array:1024:2048", 14, 14);
    fill_kind("array3d:256:256:32", 14, 14);
}

static void test_mipmapped_arrays_count(void)
{
    fill_kind("mipmap:1024:1024:4", 14, 21);
}

static void test_kinds_share_one_limit(void)
{
    const struct interpose_run run = {.cap = "1G"};

    interpose_expect(
        &run,
        "init ctx:0 alloc:100M create:100M:0 array:1024:2048 pitch:65536:512 async:96M alloc:90M free "
        "alloc:90M alloc:100M",
        "init 0\nctx 0\nalloc 0\ncreate 0\narray 0\npitch 0\nasync 0\nalloc 2\nfree 0\nalloc 0\nalloc 2\n");
}

static void test_memory_comes_back_with_its_context(void)
{
    const struct interpose_run run = {.cap = "1G"};

    interpose_expect(
        &run, "init ctx:0 fill:alloc:16M destroy held ctx:0 info fill:alloc:16M",
        "init 0\nctx 0\nfill alloc 2 n=28\ndestroy 0\nheld 0\nctx 0\ninfo 0 free=448 total=1024\n"
        "fill alloc 2 n=28\n");
    interpose_expect(&run, "init primary:0 fill:alloc:16M reset:0 primary:0 info fill:alloc:16M",
                     "init 0\nprimary 0\nfill alloc 2 n=28\nreset 0\nprimary 0\ninfo 0 free=448 total=1024\n"
                     "fill alloc 2 n=28\n");
    interpose_expect(
        &run, "init primary:0 fill:alloc:16M release:0 primary:0 info",
        "init 0\nprimary 0\nfill alloc 2 n=28\nrelease 0\nprimary 0\ninfo 0 free=448 total=1024\n");
}

static void test_queries_take_null_arguments_as_the_driver_does(void)
{
    const struct interpose_run native = {.native = true}, capped = {.cap = "1G"};
    struct spawn_result a = interpose_take(&native, "init ctx:0 info-null"),
                        b = interpose_take(&capped, "init ctx:0 info-null");

    TEST_ASSERT_EQUAL_STRING(a.out, b.out);
    TEST_ASSERT_EQUAL_INT(0, b.status);
    spawn_result_free(&a);
    spawn_result_free(&b);
}

static void test_nvml_tells_the_cap(void)
{
    const struct interpose_run run = {.cap = "1G", .unpooled = true};

    interpose_expect(
        &run, "nvml:0 init nvml:0 ctx:0 nvml:0 alloc:100M nvml:0 free nvml:0",
        "nvml 0 total=1024 free=960 used=0\ninit 0\nnvml 0 total=1024 free=960 used=0\n"
        "ctx 0\nnvml 0 total=1024 free=448 used=512\n"
        "alloc 0\nnvml 0 total=1024 free=348 used=612\nfree 0\nnvml 0 total=1024 free=448 used=512\n");
}

/* Whichever of the two a program asks, it is told how much it can have. */
static void test_nvml_and_cuda_tell_the_same_free_memory(void)
{
    static const char *const reserve[] = {"GPUCAP_RESERVE", "100M", "GPUCAP_DECAY", "off", NULL};
    const struct interpose_run run = {.cap = "2G", .variables = reserve};

    interpose_expect(&run,
                     "init ctx:0 info nvml:0 nvml-v2:0 alloc:300M info nvml:0 nvml-v2:0 free info nvml:0",
                     "init 0\nctx 0\ninfo 0 free=1436 total=2048\nnvml 0 total=2048 free=1436 used=512\n"
                     "nvml-v2 0 total=2048 reserved=100 free=1436 used=512\n"
                     "alloc 0\ninfo 0 free=1136 total=2048\nnvml 0 total=2048 free=1136 used=812\n"
                     "nvml-v2 0 total=2048 reserved=100 free=1136 used=812\n"
                     "free 0\ninfo 0 free=1436 total=2048\nnvml 0 total=2048 free=1436 used=512\n");
}

/* PyTorch's test_device_memory_used: the cache is emptied, NVML is asked, 512 MiB are allocated, and NVML's
 * used bytes are expected to have grown by that. "held" shows that the pool has kept the memory all the
 * while. */
static void test_nvml_does_not_count_what_a_pool_keeps_idle(void)
{
    static const char *const caps[] = {NULL, "none", "4G"};
    static const char *const keep[] = {"GPUCAP_DECAY", "off", NULL};
    static const char steps[] =
        "init ctx:0 nvml:0 alloc:512M nvml:0 free nvml:0 nvml-v2:0 held alloc:512M nvml:0 nvml-v2:0 held";

    for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++) {
        const struct interpose_run run = {.cap = caps[i], .variables = keep};
        const int total = i == 2 ? 4096 : 8192, reserve = i == 2 ? 64 : 0;
        const int less = total - reserve - 512, least = total - reserve - 1024;
        char want[1024];

        snprintf(
            want, sizeof(want),
            "init 0\nctx 0\nnvml 0 total=%d free=%d used=512\n"
            "alloc 0\nnvml 0 total=%d free=%d used=1024\n"
            "free 0\nnvml 0 total=%d free=%d used=512\nnvml-v2 0 total=%d reserved=%d free=%d used=512\n"
            "held 1024\n"
            "alloc 0\nnvml 0 total=%d free=%d used=1024\nnvml-v2 0 total=%d reserved=%d free=%d used=1024\n"
            "held 1024\n",
            total, less, total, least, total, less, total, reserve, less, total, least, total, reserve,
            least);
        interpose_expect(&run, steps, want);
    }
}

/* The card itself has 160 MiB left, and the pool keeps 800. */
static void test_nvml_tells_idle_memory_as_free_on_a_full_card(void)
{
    static const char *const keep[] = {"GPUCAP_DECAY", "off", NULL};
    const struct interpose_run capped = {.cards = "1x1G", .cap = "1000M", .variables = keep},
                               uncapped = {.cards = "1x1G", .variables = keep};

    interpose_expect(&capped, "init ctx:0 alloc:800M free nvml:0 held",
                     "init 0\nctx 0\nalloc 0\nfree 0\nnvml 0 total=1000 free=872 used=64\nheld 864\n");
    interpose_expect(&uncapped, "init ctx:0 alloc:800M free nvml:0 held",
                     "init 0\nctx 0\nalloc 0\nfree 0\nnvml 0 total=1024 free=960 used=64\nheld 864\n");
}

static void test_a_context_that_does_not_fit_is_refused_with_the_reason(void)
{
    const struct interpose_run run = {.cap = "100M"};
    struct spawn_result r = interpose_take(&run, "init total:0 ctx:0 primary:0 held alloc:1M");

    TEST_ASSERT_EQUAL_STRING("init 0\ntotal 0 100\nctx 2\nprimary 2\nheld 0\nalloc 201\n", r.out);
    const char *said = strstr(r.err, "gpucap: the CUDA context on device 0");
    TEST_ASSERT_NOT_NULL_MESSAGE(said, r.err);
    TEST_ASSERT_NULL_MESSAGE(strstr(said + 1, "gpucap: the CUDA context on"), "it is said once");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "512M"), r.err);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "100M"), r.err);
    spawn_result_free(&r);
}

static void test_a_second_context_that_does_not_fit_is_refused_beforehand(void)
{
    const struct interpose_run run = {.cap = "1200M"};

    interpose_expect(&run, "init watch ctx:0 alloc:300M ctx:0 held peak",
                     "init 0\nctx 0\nalloc 0\nctx 2\nheld 812\npeak 812\n");
}

static void test_a_percentage_is_of_the_card(void)
{
    const struct interpose_run half = {.cap = "50%"}, eighth = {.cap = "12.5%", .cards = "1x16G"};

    interpose_expect(&half, "init total:0", "init 0\ntotal 0 4096\n");
    interpose_expect(&eighth, "init total:0", "init 0\ntotal 0 2048\n");
}

static void test_a_cap_above_the_card_is_the_card(void)
{
    const struct interpose_run run = {.cap = "100G", .cards = "1x2G"},
                               native = {.native = true, .cards = "1x2G"};

    interpose_expect(&run, "init total:0", "init 0\ntotal 0 2048\n");
    interpose_expect(&native, "init total:0", "init 0\ntotal 0 2048\n");
}

/* The UUID of a simulated card, as NVML writes it. */
static void uuid_of(int card, char text[64])
{
    char step[16];
    const struct interpose_run run = {.program = "prog_uuid", .way = step, .native = true, .cards = "3x8G"};

    snprintf(step, sizeof(step), "%d", card);
    struct spawn_result r = interpose_take(&run, "");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    snprintf(text, 64, "%.*s", (int)strcspn(r.out, "\n"), r.out);
    TEST_ASSERT_EQUAL_INT(0, strncmp(text, "GPU-", 4));
    spawn_result_free(&r);
}

static void test_each_card_has_its_own_rule(void)
{
    char uuid[64], cap[128];

    uuid_of(1, uuid);
    snprintf(cap, sizeof(cap), "0=1G,%s=2G", uuid);
    /* A sanitizer leaves too little address space for three pools. */
    const struct interpose_run run = {.cap = cap, .cards = "3x8G", .unpooled = true};
    interpose_expect(&run,
                     "init total:0 total:1 total:2 nvml:1 nvml:2 ctx:1 fill:alloc:64M ctx:0 fill:alloc:64M "
                     "ctx:2 fill:alloc:1G",
                     "init 0\ntotal 0 1024\ntotal 0 2048\ntotal 0 8192\n"
                     "nvml 0 total=2048 free=1984 used=0\nnvml 0 total=8192 free=8192 used=0\n"
                     "ctx 0\nfill alloc 2 n=23\nctx 0\nfill alloc 2 n=7\nctx 0\nfill alloc 2 n=7\n");
}

static void test_a_uuid_rule_follows_the_card_and_a_number_follows_the_program(void)
{
    static const char *const second_only[] = {"CUDA_VISIBLE_DEVICES", "1", NULL};
    char uuid[64], by_uuid[128], other[64], by_other[128];

    uuid_of(1, uuid);
    uuid_of(0, other);
    snprintf(by_uuid, sizeof(by_uuid), "%s=2G", uuid);
    snprintf(by_other, sizeof(by_other), "%s=2G", other);
    const char *const named[] = {"CUDA_VISIBLE_DEVICES", uuid, NULL};
    const struct interpose_run runs[] = {
        {.cap = by_uuid, .cards = "3x8G", .variables = second_only},
        {.cap = by_uuid, .cards = "3x8G", .variables = named},
        {.cap = "0=2G", .cards = "3x8G", .variables = second_only},
        {.cap = "0=2G", .cards = "3x8G", .variables = named},
    };
    for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++)
        interpose_expect(&runs[i], "init total:0 total:1 ctx:0 info nvml:1 nvml:0",
                         "init 0\ntotal 0 2048\ntotal 101 0\nctx 0\ninfo 0 free=1472 total=2048\n"
                         "nvml 0 total=2048 free=1472 used=512\nnvml 0 total=8192 free=8192 used=0\n");
    const struct interpose_run not_visible = {.cap = by_other, .cards = "3x8G", .variables = second_only};
    interpose_expect(&not_visible, "init total:0", "init 0\ntotal 0 8192\n");
}

static void test_a_bad_cap_refuses_cuda_and_says_why_on_stderr(void)
{
    static const char *const bad[] = {
        "10GG", "", "0", "lots", "0=", "x=8G", "8G,4G", "101%", "99999999999999999999"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const struct interpose_run run = {.cap = bad[i]};
        struct spawn_result r =
            interpose_take(&run, "init ctx:0 primary:0 alloc:1M managed:1M create:2M:0 async:1M array:64:64");
        char value[64];

        snprintf(value, sizeof(value), "'%s'", bad[i]);
        TEST_ASSERT_EQUAL_STRING_MESSAGE(
            "init 800\nctx 800\nprimary 800\nalloc 800\nmanaged 800\ncreate 800\nasync 800\narray 800\n",
            r.out, bad[i]);
        TEST_ASSERT_EQUAL_INT(0, r.status); /* the program's own */
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "GPUCAP_MAX"), r.err);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, value), r.err);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.err, "8G, 512M, 50%, none"), r.err);
        TEST_ASSERT_EQUAL_PTR_MESSAGE(strchr(r.err, '\n'), strrchr(r.err, '\n'), "said more than once");
        spawn_result_free(&r);
    }
}

static void test_a_bad_cap_refuses_a_linked_program_too(void)
{
    const struct interpose_run run = {.program = "prog_steps_direct", .way = "direct", .cap = "junk"};
    struct spawn_result r = interpose_take(&run, "init ctx:0 total:0 alloc:1M info free-all");

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, strncmp(r.out, "init 800\nctx 800\n", 17), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "alloc 800\n"), r.out);
    spawn_result_free(&r);
}

static void test_without_a_cap_and_a_pool_everything_is_as_without_the_library(void)
{
    static const char steps[] =
        "nvml:0 alloc:1M init total:0 ctx:0 info info-null fill:alloc:1G held nvml:0 free-all info "
        "fill:create:1G:0 free-all fill:async:1G free-all sync info stack:65536 drop alloc:1M leaks";
    const struct interpose_run native = {.native = true};
    static const char *const caps[] = {NULL, "none", "0=none"};
    struct spawn_result want = interpose_take(&native, steps);

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, want.status, want.err);
    for (size_t i = 0; i < sizeof(caps) / sizeof(*caps); i++) {
        const struct interpose_run run = {.cap = caps[i], .unpooled = true};

        interpose_expect(&run, steps, want.out);
    }
    spawn_result_free(&want);
}

static void test_a_call_before_cuinit_is_answered_as_the_driver_answers(void)
{
    static const char steps[] =
        "alloc:1M info total:0 create:2M:0 ctx:0 primary:0 sync streams:1 init drop alloc:1M";
    const struct interpose_run native = {.native = true}, wrapped = {.cap = "1G"},
                               direct = {.program = "prog_steps_direct", .way = "direct", .cap = "1G"};
    struct spawn_result want = interpose_take(&native, steps);

    interpose_expect(&wrapped, steps, want.out);
    interpose_expect(&direct, steps, want.out);
    spawn_result_free(&want);
}

static void test_threads_that_race_never_pass_the_cap(void)
{
    const struct interpose_run run = {.cap = "1G", .unpooled = true};
    struct spawn_result r = interpose_take(&run, "init ctx:0 watch race:8:20M peak info leaks");
    const char *peak = strstr(r.out, "peak ");

    TEST_ASSERT_EQUAL_STRING_MESSAGE("", r.err, r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "race wrong=0\n"), r.out);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(r.out, "info 0 free=448 total=1024\nleaks 0\n"), r.out);
    TEST_ASSERT_TRUE_MESSAGE(peak && atoi(peak + 5) <= 1024, r.out);
    spawn_result_free(&r);
}

static void test_growth_of_the_context_is_refused_at_the_cap(void)
{
    const struct interpose_run run = {.cap = "1G"};

    /* A stack of 64 KiB for every thread that can be resident is gigabytes. */
    interpose_expect(&run, "init ctx:0 stack:65536 alloc:448M streams:1",
                     "init 0\nctx 0\nstack 2\nalloc 0\nstreams 0\n");
}

static void test_a_reserve_can_be_set(void)
{
    static const char *const none[] = {"GPUCAP_RESERVE", "0", NULL}, *const half[] = {"GPUCAP_RESERVE", "25%",
                                                                                      NULL};
    const struct interpose_run a = {.cap = "1G", .variables = none}, b = {.cap = "1G", .variables = half};

    interpose_expect(&a, "init ctx:0 info fill:alloc:32M held",
                     "init 0\nctx 0\ninfo 0 free=512 total=1024\nfill alloc 2 n=16\nheld 1024\n");
    interpose_expect(&b, "init ctx:0 info", "init 0\nctx 0\ninfo 0 free=256 total=1024\n");
}

int main(void)
{
    interpose_need_sim();
    UNITY_BEGIN();
    RUN_TEST(test_the_cap_holds_for_a_program_linked_with_the_driver);
    RUN_TEST(test_the_cap_holds_for_a_program_that_uses_dlsym);
    RUN_TEST(test_the_cap_holds_for_a_program_that_looks_everywhere);
    RUN_TEST(test_the_cap_holds_for_a_program_that_uses_cugetprocaddress);
    RUN_TEST(test_the_cap_holds_for_a_program_that_uses_the_first_cugetprocaddress);
    RUN_TEST(test_the_cap_holds_for_a_program_with_per_thread_streams);
    RUN_TEST(test_the_cap_holds_for_a_program_with_the_shared_runtime);
    RUN_TEST(test_the_cap_holds_for_a_program_with_the_static_runtime);
    RUN_TEST(test_pitched_memory_counts);
    RUN_TEST(test_managed_memory_counts);
    RUN_TEST(test_stream_ordered_memory_counts);
    RUN_TEST(test_physical_memory_counts);
    RUN_TEST(test_arrays_count);
    RUN_TEST(test_mipmapped_arrays_count);
    RUN_TEST(test_kinds_share_one_limit);
    RUN_TEST(test_memory_comes_back_with_its_context);
    RUN_TEST(test_queries_take_null_arguments_as_the_driver_does);
    RUN_TEST(test_nvml_tells_the_cap);
    RUN_TEST(test_nvml_and_cuda_tell_the_same_free_memory);
    RUN_TEST(test_nvml_does_not_count_what_a_pool_keeps_idle);
    RUN_TEST(test_nvml_tells_idle_memory_as_free_on_a_full_card);
    RUN_TEST(test_a_context_that_does_not_fit_is_refused_with_the_reason);
    RUN_TEST(test_a_second_context_that_does_not_fit_is_refused_beforehand);
    RUN_TEST(test_a_percentage_is_of_the_card);
    RUN_TEST(test_a_cap_above_the_card_is_the_card);
    RUN_TEST(test_each_card_has_its_own_rule);
    RUN_TEST(test_a_uuid_rule_follows_the_card_and_a_number_follows_the_program);
    RUN_TEST(test_a_bad_cap_refuses_cuda_and_says_why_on_stderr);
    RUN_TEST(test_a_bad_cap_refuses_a_linked_program_too);
    RUN_TEST(test_without_a_cap_and_a_pool_everything_is_as_without_the_library);
    RUN_TEST(test_a_call_before_cuinit_is_answered_as_the_driver_answers);
    RUN_TEST(test_threads_that_race_never_pass_the_cap);
    RUN_TEST(test_growth_of_the_context_is_refused_at_the_cap);
    RUN_TEST(test_a_reserve_can_be_set);
    return UNITY_END();
}
