/* The library inside a host program: what it exports, and what it must not change. */
#include "interpose_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void setUp(void) {}
void tearDown(void) {}

static bool is_allowed(const char *name)
{
    static const char *const exact[] = {"InitializeInjectionNvtx2", /* what NVTX asks for, with nvtx=on */
                                        "dlmopen",
                                        "dlopen",
                                        "dlsym",
                                        "dlvsym",
                                        "dup2",
                                        "dup3",
                                        "freopen",
                                        "freopen64",
                                        "nvmlDeviceGetMemoryInfo",
                                        "nvmlDeviceGetMemoryInfo_v2"};

    for (size_t i = 0; i < sizeof(exact) / sizeof(*exact); i++) {
        if (!strcmp(name, exact[i]))
            return true;
    }
    return !strncmp(name, "gpucap_", 7) || (!strncmp(name, "cu", 2) && name[2] >= 'A' && name[2] <= 'Z');
}

static struct spawn_result symbols_of(const char *file)
{
    struct spawn_env *env = spawn_env_new();
    const char *argv[] = {"nm", "-D", "--defined-only", spawn_build_path(file), NULL};
    struct spawn_result r = spawn_run(env, argv, NULL);

    spawn_env_free(env);
    return r;
}

static void test_only_hooks_and_our_own_names_are_exported(void)
{
    struct spawn_result r = symbols_of("libgpucap.so");
    int hooks = 0;

    if (r.status == 127)
        TEST_IGNORE_MESSAGE("there is no nm");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n")) {
        char *name = strrchr(line, ' ') + 1;

        name[strcspn(name, "@")] = '\0';
        TEST_ASSERT_TRUE_MESSAGE(is_allowed(name), name);
        hooks += !strncmp(name, "cu", 2);
    }
    TEST_ASSERT_TRUE(hooks > 30);
    spawn_result_free(&r);
}

static void host(const char *program)
{
    static const char *const ways[] = {"dlsym", "proc"};

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        struct interpose_run run = {.program = program, .way = ways[i], .native = true};
        struct spawn_result want = interpose_take(&run, "");

        TEST_ASSERT_EQUAL_INT_MESSAGE(0, want.status, want.err);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, strncmp(want.out, "0 0 0 2 0 0\ndestroy 0\n", 22), want.out);
        run.native = false;
        run.cap = "1G";
        interpose_expect(&run, "", want.out);
        run.cap = NULL;
        interpose_expect(&run, "", want.out);
        spawn_result_free(&want);
    }
}

static void test_environment_signals_umask_and_errno_stay_the_hosts_own(void)
{
    host("prog_host");
}

static void test_a_program_with_its_own_malloc_works(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    TEST_IGNORE_MESSAGE("a sanitizer has a malloc of its own");
#endif
    host("prog_host_malloc");
}

/* The lines of a text that begin with the word, or hold it, counted. */
static int lines_with(const char *text, const char *word)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, word)); p++)
        n++;
    return n;
}

static struct spawn_result foreign(bool native, const char *const argv[])
{
    const struct interpose_run run = {.native = native, .cap = native ? NULL : "1G"};
    struct spawn_env *env = interpose_env(&run);
    struct spawn_result r = spawn_run(env, argv, NULL);

    spawn_env_free(env);
    return r;
}

static void test_a_program_without_cuda_is_left_alone(void)
{
    static const char *const maps[] = {"cat", "/proc/self/maps", NULL},
                             *const tasks[] = {"ls", "/proc/self/task", NULL},
                             *const files[] = {"ls", "/proc/self/fd", NULL};
    struct spawn_result r = foreign(false, maps), t = foreign(false, tasks), f = foreign(false, files),
                        n = foreign(true, files);

    TEST_ASSERT_EQUAL_INT_MESSAGE(0, r.status, r.err);
    TEST_ASSERT_TRUE_MESSAGE(lines_with(r.out, "libgpucap.so") > 0, "the library was not preloaded");
    TEST_ASSERT_EQUAL_INT(0, lines_with(r.out, "libcuda"));
    TEST_ASSERT_EQUAL_INT(0, lines_with(r.out, "libnvidia-ml"));
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, lines_with(t.out, "\n"), t.out);
    TEST_ASSERT_EQUAL_STRING(n.out, f.out);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    spawn_result_free(&r);
    spawn_result_free(&t);
    spawn_result_free(&f);
    spawn_result_free(&n);
}

static void test_a_bad_cap_does_not_touch_a_program_without_cuda(void)
{
    const struct interpose_run run = {.cap = "junk"};
    struct spawn_env *env = interpose_env(&run);
    const char *argv[] = {"sh", "-c", "echo hello; true | cat; exit 3", NULL};
    struct spawn_result r = spawn_run(env, argv, NULL);

    TEST_ASSERT_EQUAL_INT(3, r.status);
    TEST_ASSERT_EQUAL_STRING("hello\n", r.out);
    TEST_ASSERT_EQUAL_STRING("", r.err);
    spawn_result_free(&r);
    spawn_env_free(env);
}

static void test_the_environment_of_children_is_the_programs_own(void)
{
    static const char *const argv[] = {
        "sh", "-c", "env | grep -v ^LD_PRELOAD= | grep -v ^GPUCAP_MAX= | grep -v ^ASAN_OPTIONS= | sort",
        NULL};
    struct spawn_result a = foreign(true, argv), b = foreign(false, argv);

    TEST_ASSERT_EQUAL_STRING(a.out, b.out);
    spawn_result_free(&a);
    spawn_result_free(&b);
}

int main(void)
{
    interpose_need_sim();
    UNITY_BEGIN();
    RUN_TEST(test_only_hooks_and_our_own_names_are_exported);
    RUN_TEST(test_environment_signals_umask_and_errno_stay_the_hosts_own);
    RUN_TEST(test_a_program_with_its_own_malloc_works);
    RUN_TEST(test_a_program_without_cuda_is_left_alone);
    RUN_TEST(test_a_bad_cap_does_not_touch_a_program_without_cuda);
    RUN_TEST(test_the_environment_of_children_is_the_programs_own);
    return UNITY_END();
}
