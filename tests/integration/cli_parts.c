/* The parts of the command line that parse outside data: libraries, lists, names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_support.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/elfscan.h"
#include "tools/gpucap/preload.h"
#include "tools/gpucap/symbols.h"
#include "unity.h"

#define LIBRARY_MAX (1 << 20)

void setUp(void)
{
    cli_set_up();
}

void tearDown(void)
{
    cli_tear_down();
}

static bool count_name(const char *name, void *arg)
{
    (void)name;
    ++*(int *)arg;
    return true;
}

struct wanted {
    const char *name;
    bool found;
};

static bool compare_name(const char *name, void *arg)
{
    struct wanted *wanted = arg;

    wanted->found = !strcmp(name, wanted->name);
    return !wanted->found;
}

static bool defines(const struct elfscan *scan, const char *name)
{
    struct wanted wanted = {.name = name};

    elfscan_defined(scan, compare_name, &wanted);
    return wanted.found;
}

static void test_defined_symbols_of_a_library_are_found_without_loading_it(void)
{
    struct elfscan scan;
    char text[16];
    TEST_ASSERT_EQUAL_INT(0, elfscan_open(&scan, spawn_build_path("tests/integration/libcli_rival.so")));
    TEST_ASSERT_TRUE(defines(&scan, "cuMemAlloc_v2"));
    TEST_ASSERT_FALSE(defines(&scan, "cuMemFree_v2"));
    TEST_ASSERT_FALSE(elfscan_read_string(&scan, "cuMemAlloc_v2", text, sizeof(text)));
    elfscan_close(&scan);
    TEST_ASSERT_EQUAL_INT(0, elfscan_open(&scan, spawn_build_path("tests/integration/libcli_quiet.so")));
    TEST_ASSERT_TRUE(elfscan_read_string(&scan, "gpucap_version_text", text, sizeof(text)));
    TEST_ASSERT_EQUAL_STRING("0.0.0", text);
    TEST_ASSERT_FALSE(elfscan_read_string(&scan, "gpucap_version_text", text, 3));
    elfscan_close(&scan);
}

static void test_files_that_are_no_library_are_refused(void)
{
    struct elfscan scan;
    cli_write(cli_path("empty"), "", 0, 0600);
    cli_write(cli_path("text"), "hello", 5, 0600);
    TEST_ASSERT_EQUAL_INT(-ENOEXEC, elfscan_open(&scan, cli_path("empty")));
    TEST_ASSERT_EQUAL_INT(-ENOEXEC, elfscan_open(&scan, cli_path("text")));
    TEST_ASSERT_EQUAL_INT(-ENOEXEC, elfscan_open(&scan, cli_folder()));
    TEST_ASSERT_EQUAL_INT(-ENOENT, elfscan_open(&scan, cli_path("absent")));
}

/* Truncates a library at every length, then sets each byte of the header and the section table to 0xff: the
 * parser may answer anything, but not crash (sanitizer builds check that). */
static void test_damaged_libraries_do_no_harm(void)
{
    struct elfscan scan;
    char text[64];
    unsigned char *bytes = malloc(LIBRARY_MAX);
    FILE *file = fopen(spawn_build_path("tests/integration/libcli_quiet.so"), "re");
    TEST_ASSERT_NOT_NULL(file);
    size_t count = fread(bytes, 1, LIBRARY_MAX, file);
    fclose(file);
    for (size_t cut = 0; cut < count; cut += cut < 256 ? 1 : 251) {
        unsigned char *part = malloc(cut + 1);
        memcpy(part, bytes, cut);
        elfscan_parse(&scan, part, cut);
        free(part);
    }
    for (size_t i = 0; i < count; i += i < 1024 || i + 4096 > count ? 1 : 61) {
        int names = 0;
        unsigned char saved = bytes[i];
        bytes[i] = 0xff;
        if (elfscan_parse(&scan, bytes, count) == 0) {
            elfscan_defined(&scan, count_name, &names);
            elfscan_read_string(&scan, "gpucap_version_text", text, sizeof(text));
        }
        bytes[i] = saved;
    }
    free(bytes);
}

static void test_preload_lists_are_read_as_the_loader_reads_them(void)
{
    const char *list = ": /a/b.so:c.so  d.so:";
    const char *const expected[] = {"/a/b.so", "c.so", "d.so"};
    size_t length;
    for (int i = 0; i < 3; i++) {
        const char *entry = preload_next(&list, PRELOAD_SEPARATORS, &length);
        TEST_ASSERT_NOT_NULL(entry);
        TEST_ASSERT_EQUAL_INT((int)strlen(expected[i]), (int)length);
        TEST_ASSERT_EQUAL_STRING_LEN(expected[i], entry, length);
    }
    TEST_ASSERT_NULL(preload_next(&list, PRELOAD_SEPARATORS, &length));
}

static void test_library_is_known_by_its_file_not_its_spelling(void)
{
    char spelled[8192];
    const char *path = cli_path("one.so");
    cli_write(path, "x", 1, 0600);
    snprintf(spelled, sizeof(spelled), "%s/./one.so", cli_folder());
    char *list = preload_append(spelled, path);
    TEST_ASSERT_EQUAL_STRING(spelled, list);
    free(list);
    list = preload_append("", path);
    TEST_ASSERT_EQUAL_STRING(path, list);
    free(list);
    list = preload_append(NULL, path);
    TEST_ASSERT_EQUAL_STRING(path, list);
    free(list);
}

static void test_only_exact_names_are_hooked(void)
{
    TEST_ASSERT_EQUAL_INT(SYMBOLS_HOOKED, symbols_classify("cuMemAlloc_v2"));
    TEST_ASSERT_EQUAL_INT(SYMBOLS_NOT_COUNTED, symbols_classify("cuMemAlloc_v99"));
    TEST_ASSERT_EQUAL_INT(SYMBOLS_HOST, symbols_classify("cuMemHostAlloc"));
    TEST_ASSERT_EQUAL_INT(SYMBOLS_HOST, symbols_classify("cuMemAllocHost_v2"));
    TEST_ASSERT_EQUAL_INT(SYMBOLS_OTHER, symbols_classify("cuMemcpyHtoD_v2"));
    TEST_ASSERT_EQUAL_INT(SYMBOLS_OTHER, symbols_classify("cudnnCreate"));
    TEST_ASSERT_TRUE(symbols_conflict("dlsym"));
    TEST_ASSERT_TRUE(symbols_conflict("cuMemAlloc_v2"));
    TEST_ASSERT_FALSE(symbols_conflict("cudaMalloc"));
    TEST_ASSERT_FALSE(symbols_conflict("cudnnCreate"));
}

static void test_suggestions_are_near_or_none(void)
{
    static const char *const words[] = {"run", "doctor", "max"};
    TEST_ASSERT_EQUAL_STRING("doctor", cli_suggest("docto", words, 3));
    TEST_ASSERT_EQUAL_STRING("max", cli_suggest("mxa", words, 3));
    TEST_ASSERT_NULL(cli_suggest("elephant", words, 3));
    TEST_ASSERT_NULL(cli_suggest("", words, 3));
    TEST_ASSERT_NULL(cli_suggest("a-word-that-is-far-too-long-to-be-compared", words, 3));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_defined_symbols_of_a_library_are_found_without_loading_it);
    RUN_TEST(test_files_that_are_no_library_are_refused);
    RUN_TEST(test_damaged_libraries_do_no_harm);
    RUN_TEST(test_preload_lists_are_read_as_the_loader_reads_them);
    RUN_TEST(test_library_is_known_by_its_file_not_its_spelling);
    RUN_TEST(test_only_exact_names_are_hooked);
    RUN_TEST(test_suggestions_are_near_or_none);
    return UNITY_END();
}
