/* What `gpucap run` promises: it becomes the program, sets exactly the environment that was asked for, and
 * never starts a program that would run without its cap.
 */
#include <elf.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_support.h"
#include "unity.h"

#define OTHER_USER 12345 /* any user but the one who runs the test */

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

static void expect_refusal(const char *text, struct spawn_result result)
{
    cli_expect_status(125, &result);
    cli_expect_err("gpucap: run: ", &result);
    cli_expect_err(text, &result);
    TEST_ASSERT_EQUAL_STRING("", result.out);
    spawn_result_free(&result);
}

static void expect_output(const char *out, struct spawn_result result)
{
    cli_expect_status(0, &result);
    TEST_ASSERT_EQUAL_STRING(out, result.out);
    spawn_result_free(&result);
}

static void test_program_replaces_gpucap_and_keeps_its_process_id(void)
{
    struct spawn_env *env = cli_env();
    spawn_env_set(env, "CLI", spawn_build_path("gpucap"));
    struct spawn_result result = spawn_run(
        env, (const char *[]){"sh", "-c", "echo $$; exec \"$CLI\" run -- sh -c 'echo $$'", NULL}, NULL);
    cli_expect_status(0, &result);
    long before = 0;
    long after = -1;
    TEST_ASSERT_EQUAL_INT(2, sscanf(result.out, "%ld\n%ld\n", &before, &after));
    TEST_ASSERT_EQUAL_INT64(before, after);
    spawn_result_free(&result);
    spawn_env_free(env);
}

static void test_exit_status_is_the_programs_own(void)
{
    struct spawn_result result = CLI_RUN(NULL, "run", "--", "sh", "-c", "exit 7");
    cli_expect_status(7, &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "run", "--", "sh", "-c", "kill -TERM $$");
    TEST_ASSERT_EQUAL_INT(15, result.signal);
    spawn_result_free(&result);
}

static void test_missing_program_is_127_and_unusable_one_126(void)
{
    struct spawn_result result = CLI_RUN(NULL, "run", "--", "no-such-program-anywhere");
    cli_expect_status(127, &result);
    cli_expect_err("no-such-program-anywhere", &result);
    spawn_result_free(&result);
    cli_write(cli_path("plain"), "text\n", 5, 0600);
    result = CLI_RUN(NULL, "run", "--", cli_path("plain"));
    cli_expect_status(126, &result);
    cli_expect_err("Permission denied", &result);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "run", "--", cli_folder());
    cli_expect_status(126, &result);
    spawn_result_free(&result);
}

static void test_options_reach_the_program_as_environment(void)
{
    expect_output("1G 32M info\n", CLI_RUN(NULL, "run", "--max=1G", "--reserve", "32M", "--log=info", "--",
                                           "sh", "-c", "echo $GPUCAP_MAX $GPUCAP_RESERVE $GPUCAP_LOG"));
}

static void test_an_option_wins_over_the_environment(void)
{
    struct spawn_env *env = cli_env();
    spawn_env_set(env, "GPUCAP_MAX", "3G");
    expect_output("1G\n", CLI_RUN(env, "run", "--max=1G", "sh", "-c", "echo $GPUCAP_MAX"));
    expect_output("3G\n", CLI_RUN(env, "run", "sh", "-c", "echo $GPUCAP_MAX"));
    spawn_env_free(env);
}

static void test_program_arguments_are_left_alone_without_dashes(void)
{
    expect_output("--max=5G\n", CLI_RUN(NULL, "run", "--max=1G", "echo", "--max=5G"));
    expect_output("-- --sim\n", CLI_RUN(NULL, "run", "--", "echo", "--", "--sim"));
}

static void test_bad_values_name_the_value_and_the_accepted_form(void)
{
    expect_refusal("'8Q'", CLI_RUN(NULL, "run", "--max=8Q", "--", "echo", "ran"));
    expect_refusal("--max='50 %' is not valid (not a size); accepted: 8G, 512M, 50%",
                   CLI_RUN(NULL, "run", "--max=50 %", "--", "echo", "ran"));
    expect_refusal("--max='8' is not valid (less than 1M: a size needs its unit); accepted: 8G, 512M, 50%",
                   CLI_RUN(NULL, "run", "--max=8", "--", "echo", "ran"));
    expect_refusal("--each='0=8G,1=4' is not valid",
                   CLI_RUN(NULL, "run", "--each=0=8G,1=4", "--", "echo", "ran"));
    expect_output("ran\n", CLI_RUN(NULL, "run", "--max=1048576", "--min=0", "--", "echo", "ran"));
    expect_refusal("'loud'", CLI_RUN(NULL, "run", "--log=loud", "--", "echo", "ran"));
    expect_refusal("needs a value", CLI_RUN(NULL, "run", "--max"));
    expect_refusal("--group='all' is not valid", CLI_RUN(NULL, "run", "--group=all", "--", "echo", "ran"));
    expect_refusal("--summary takes no value", CLI_RUN(NULL, "run", "--summary=on", "--", "echo", "ran"));
}

static void test_bad_environment_or_file_stops_before_the_program(void)
{
    struct spawn_env *env = cli_env();
    spawn_env_set(env, "GPUCAP_MAX", "lots");
    expect_refusal("'lots'", CLI_RUN(env, "run", "--", "echo", "ran"));
    spawn_env_unset(env, "GPUCAP_MAX");
    TEST_ASSERT_EQUAL_INT(0, mkdir(cli_path(".config"), 0700));
    cli_write(cli_path(".config/gpucap.conf"), "max = 7 bananas\n", 16, 0600);
    expect_refusal("bananas", CLI_RUN(env, "run", "--", "echo", "ran"));
    spawn_env_free(env);
}

static void test_unknown_options_are_refused_with_a_suggestion(void)
{
    expect_refusal("did you mean --max?", CLI_RUN(NULL, "run", "--mxa=1G", "--", "echo", "ran"));
    expect_refusal("'--wibble'", CLI_RUN(NULL, "run", "--wibble", "--", "echo", "ran"));
    expect_refusal("did you mean --max?", CLI_RUN(NULL, "run", "-max=1G", "echo", "ran"));
    expect_refusal("'-x'", CLI_RUN(NULL, "run", "-x", "echo", "ran"));
    expect_refusal("a program is missing", CLI_RUN(NULL, "run", "--max=1G"));
    expect_refusal("a program is missing", CLI_RUN(NULL, "run", "--max=1G", "--"));
}

static void test_library_that_cannot_be_preloaded_is_refused(void)
{
    struct spawn_env *env = cli_env();
    spawn_env_set(env, "GPUCAP_LIB", cli_path("absent.so"));
    expect_refusal("absent.so", CLI_RUN(env, "run", "--", "echo", "ran"));
    cli_write(cli_path("text.so"), "not a library", 13, 0700);
    spawn_env_set(env, "GPUCAP_LIB", cli_path("text.so"));
    expect_refusal("text.so", CLI_RUN(env, "run", "--", "echo", "ran"));
    spawn_env_set(env, "GPUCAP_LIB", spawn_build_path("tests/integration/libcli_rival.so"));
    expect_refusal("not gpucap's library", CLI_RUN(env, "run", "--", "echo", "ran"));
    spawn_env_free(env);
}

/* The loader would only print a message on stderr, and start the program without the library. */
static void test_library_for_another_architecture_is_refused(void)
{
    struct spawn_env *env = cli_env();
    Elf64_Half machine = EM_RISCV;
    cli_copy(spawn_build_path("tests/integration/libcli_quiet.so"), cli_path("foreign.so"), 0700);
    FILE *file = fopen(cli_path("foreign.so"), "r+e");
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_INT(0, fseek(file, offsetof(Elf64_Ehdr, e_machine), SEEK_SET));
    TEST_ASSERT_EQUAL_size_t(1, fwrite(&machine, sizeof(machine), 1, file));
    fclose(file);
    spawn_env_set(env, "GPUCAP_LIB", cli_path("foreign.so"));
    expect_refusal("another architecture", CLI_RUN(env, "run", "--", "echo", "ran"));
    spawn_env_free(env);
}

static void test_library_path_that_ld_preload_cannot_hold_is_refused(void)
{
    static const char *const folders[] = {"a b", "a:b", "a$b"};
    struct spawn_env *env = cli_env();
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char library[64];
        snprintf(library, sizeof(library), "%s/lib.so", folders[i]);
        TEST_ASSERT_EQUAL_INT(0, mkdir(cli_path(folders[i]), 0700));
        cli_copy(spawn_build_path("tests/integration/libcli_quiet.so"), cli_path(library), 0700);
        spawn_env_set(env, "GPUCAP_LIB", cli_path(library));
        expect_refusal("LD_PRELOAD cannot hold", CLI_RUN(env, "run", "--", "echo", "ran"));
    }
    spawn_env_free(env);
}

static void test_preload_list_is_kept_and_never_holds_the_library_twice(void)
{
    const char *library = spawn_build_path("tests/integration/libcli_quiet.so");
    const char *other = cli_path("other.so");
    char expected[8192];
    struct spawn_env *env = cli_env();
    cli_copy(library, other, 0700);
    spawn_env_set(env, "LD_PRELOAD", other);
    snprintf(expected, sizeof(expected), "%s:%s\n", other, library);
    expect_output(expected, CLI_RUN(env, "run", "--", "sh", "-c", "echo $LD_PRELOAD"));
    expect_output(expected, CLI_RUN(env, "run", "--", spawn_build_path("gpucap"), "run", "--max=1G", "--",
                                    "sh", "-c", "echo $LD_PRELOAD"));
    spawn_env_unset(env, "LD_PRELOAD");
    snprintf(expected, sizeof(expected), "%s\n", library);
    expect_output(expected, CLI_RUN(env, "run", "--", "sh", "-c", "echo $LD_PRELOAD"));
    spawn_env_free(env);
}

static void test_sim_puts_the_simulated_driver_first(void)
{
    char expected[8192];
    struct spawn_env *env = cli_env();
    spawn_env_set(env, "LD_LIBRARY_PATH", "/opt/other");
    snprintf(expected, sizeof(expected), "%s:/opt/other 2x3G\n", spawn_build_path("sim"));
    expect_output(expected,
                  CLI_RUN(env, "run", "--sim=2x3G", "--", "sh", "-c", "echo $LD_LIBRARY_PATH $GPUCAP_SIM"));
    spawn_env_set(env, "GPUCAP_SIM", "1x5G");
    expect_output("1x5G\n", CLI_RUN(env, "run", "--sim", "--", "sh", "-c", "echo $GPUCAP_SIM"));
    spawn_env_set(env, "GPUCAP_SIM", "2xx");
    expect_refusal("GPUCAP_SIM='2xx' is not valid", CLI_RUN(env, "run", "--sim", "--", "echo", "ran"));
    spawn_env_free(env);
    expect_refusal("--sim='2xx' is not valid", CLI_RUN(NULL, "run", "--sim=2xx", "--", "echo", "ran"));
    struct spawn_result result = CLI_RUN(NULL, "run", "--sim", "2x3G", "echo", "ran");
    cli_expect_status(127, &result);
    cli_expect_err("there is no program '2x3G'; for simulated cards write --sim=2x3G\n", &result);
    spawn_result_free(&result);
}

static void test_program_with_other_rights_is_refused(void)
{
    if (getuid() != 0)
        TEST_IGNORE_MESSAGE("only root can make a set-user-ID program of another user");
    cli_copy("/bin/echo", cli_path("privileged"), 0755);
    TEST_ASSERT_EQUAL_INT(0, chown(cli_path("privileged"), OTHER_USER, OTHER_USER));
    TEST_ASSERT_EQUAL_INT(0, chmod(cli_path("privileged"), 04755));
    expect_refusal("other rights", CLI_RUN(NULL, "run", "--", cli_path("privileged")));
}

static void write_script(const char *path, const char *before, const char *interpreter, const char *after)
{
    char text[512];
    int length = snprintf(text, sizeof(text), "#!%s%s%s\necho ran\n", before, interpreter, after);
    cli_write(path, text, (size_t)length, 0755);
}

/* The kernel uses the rights of a script's interpreter and ignores those of the script. */
static void test_a_script_counts_as_its_interpreter(void)
{
    if (getuid() != 0)
        TEST_IGNORE_MESSAGE("only root can make a set-user-ID program of another user");
    write_script(cli_path("script"), "", "/bin/sh", "");
    TEST_ASSERT_EQUAL_INT(0, chown(cli_path("script"), OTHER_USER, OTHER_USER));
    TEST_ASSERT_EQUAL_INT(0, chmod(cli_path("script"), 04755));
    expect_output("ran\n", CLI_RUN(NULL, "run", "--", cli_path("script")));

    cli_copy("/bin/echo", cli_path("privileged"), 0755);
    TEST_ASSERT_EQUAL_INT(0, chown(cli_path("privileged"), OTHER_USER, OTHER_USER));
    TEST_ASSERT_EQUAL_INT(0, chmod(cli_path("privileged"), 04755));
    write_script(cli_path("inner"), " \t", cli_path("privileged"), " -n");
    expect_refusal("other rights", CLI_RUN(NULL, "run", "--", cli_path("inner")));
    write_script(cli_path("outer"), "", cli_path("inner"), "");
    expect_refusal("other rights", CLI_RUN(NULL, "run", "--", cli_path("outer")));

    write_script(cli_path("lost"), "", "/nonexistent/interpreter", "");
    struct spawn_result result = CLI_RUN(NULL, "run", "--", cli_path("lost"));
    cli_expect_status(127, &result);
    cli_expect_err("exists, but the interpreter that it names does not", &result);
    spawn_result_free(&result);
}

static void write_elf(const char *path, unsigned char class, unsigned machine)
{
    Elf64_Ehdr header = {
        .e_type = ET_EXEC, .e_machine = (Elf64_Half)machine, .e_phentsize = sizeof(Elf64_Phdr)};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = class;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    cli_write(path, &header, sizeof(header), 0700);
}

static void test_foreign_program_is_refused_and_static_one_warned_about(void)
{
#ifdef __x86_64__
    unsigned own = EM_X86_64;
#else
    unsigned own = EM_AARCH64;
#endif
    write_elf(cli_path("foreign"), ELFCLASS32, EM_386);
    expect_refusal("another architecture", CLI_RUN(NULL, "run", "--", cli_path("foreign")));
    write_elf(cli_path("static"), ELFCLASS64, own);
    struct spawn_result result = CLI_RUN(NULL, "run", "--", cli_path("static"));
    cli_expect_err("statically linked", &result);
    spawn_result_free(&result);
}

static void test_adopt_sets_the_frameworks_switches_and_keeps_the_users(void)
{
    static const char show[] = "echo $PYTORCH_NO_CUDA_MEMORY_CACHING $PYTORCH_CUDA_ALLOC_CONF "
                               "$XLA_PYTHON_CLIENT_ALLOCATOR $TF_GPU_ALLOCATOR";
    struct spawn_env *env = cli_env();

    expect_output("1 platform\n", CLI_RUN(NULL, "run", "--adopt", "sh", "-c", show));
    expect_output("1 platform\n", CLI_RUN(NULL, "run", "--adopt=pool", "sh", "-c", show));
    expect_output("backend:cudaMallocAsync cuda_async cuda_malloc_async\n",
                  CLI_RUN(NULL, "run", "--adopt=async", "sh", "-c", show));
    spawn_env_set(env, "XLA_PYTHON_CLIENT_ALLOCATOR", "bfc");
    expect_output("1 bfc\n", CLI_RUN(env, "run", "--adopt", "sh", "-c", show));
    spawn_env_set(env, "PYTORCH_ALLOC_CONF", "expandable_segments:True"); /* the newer name */
    expect_output("bfc cuda_malloc_async\n", CLI_RUN(env, "run", "--adopt=async", "sh", "-c", show));
    struct spawn_result result = CLI_RUN(env, "run", "--adopt=all", "true");
    cli_expect_status(125, &result);
    cli_expect_err("--adopt='all' is not valid; accepted: pool or async", &result);
    spawn_result_free(&result);
    spawn_env_free(env);
}

/* A loop of a shell ends with its program if that ends by SIGINT itself. */
static void test_an_interrupted_program_interrupts_gpucap_as_well(void)
{
    struct spawn_result result = CLI_RUN(NULL, "run", "--summary", "sh", "-c", "kill -INT $$");

    TEST_ASSERT_EQUAL_INT(SIGINT, result.signal);
    spawn_result_free(&result);
    result = CLI_RUN(NULL, "run", "--summary", "sh", "-c", "kill -TERM $$");
    TEST_ASSERT_EQUAL_INT(0, result.signal);
    cli_expect_status(128 + SIGTERM, &result);
    spawn_result_free(&result);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_program_replaces_gpucap_and_keeps_its_process_id);
    RUN_TEST(test_exit_status_is_the_programs_own);
    RUN_TEST(test_missing_program_is_127_and_unusable_one_126);
    RUN_TEST(test_options_reach_the_program_as_environment);
    RUN_TEST(test_an_option_wins_over_the_environment);
    RUN_TEST(test_program_arguments_are_left_alone_without_dashes);
    RUN_TEST(test_bad_values_name_the_value_and_the_accepted_form);
    RUN_TEST(test_bad_environment_or_file_stops_before_the_program);
    RUN_TEST(test_unknown_options_are_refused_with_a_suggestion);
    RUN_TEST(test_library_that_cannot_be_preloaded_is_refused);
    RUN_TEST(test_library_for_another_architecture_is_refused);
    RUN_TEST(test_library_path_that_ld_preload_cannot_hold_is_refused);
    RUN_TEST(test_preload_list_is_kept_and_never_holds_the_library_twice);
    RUN_TEST(test_sim_puts_the_simulated_driver_first);
    RUN_TEST(test_program_with_other_rights_is_refused);
    RUN_TEST(test_a_script_counts_as_its_interpreter);
    RUN_TEST(test_foreign_program_is_refused_and_static_one_warned_about);
    RUN_TEST(test_adopt_sets_the_frameworks_switches_and_keeps_the_users);
    RUN_TEST(test_an_interrupted_program_interrupts_gpucap_as_well);
    return UNITY_END();
}
