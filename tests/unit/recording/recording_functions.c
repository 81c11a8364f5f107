/* Names of functions in call stacks: found in the file that was recorded, and not in one that was changed
 * since or is none. */
#include <elf.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/recording_make.h"
#include "tools/gpucap/recording_frames.h"
#include "unity.h"

static struct functions functions;
static char name[FUNCTIONS_NAME];

void setUp(void) {}

void tearDown(void)
{
    functions_close(&functions);
}

/* Not static and not inlined: it must have a name of its own. */
__attribute__((noinline)) uintptr_t recording_functions_known(void);
uintptr_t recording_functions_known(void)
{
    return (uintptr_t)__builtin_return_address(0);
}

/* The line of /proc/self/maps that has the address, as a recording names a module. */
static void find_module(uintptr_t address, char module[512])
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], path[256];
    unsigned long start, end, offset;

    *module = '\0';
    TEST_ASSERT_NOT_NULL(maps);
    while (fgets(line, sizeof(line), maps)) {
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %255s", &start, &end, &offset, path) == 4 &&
            address >= start && address < end)
            snprintf(module, 512, "%lx %lx %lx %s", start, end, offset, path);
    }
    fclose(maps);
    TEST_ASSERT_TRUE(*module);
}

/* A recording with one module. */
static void record(const char *module, uint64_t began_unix_ns, struct recording *recording)
{
    struct recording_make make;
    char path[] = "/tmp/gpucap-recording-XXXXXX", why[RECORDING_WHY];

    close(mkstemp(path));
    recording_make_open(&make, path, (struct recording_head){.began_unix_ns = began_unix_ns},
                        RECORDING_PLAIN);
    recording_make_name(&make, RECORDING_MODULE, 0, module, strlen(module));
    recording_make_close(&make, 1, true);
    TEST_ASSERT_EQUAL_INT(0, recording_open(recording, path, why));
    unlink(path);
}

static void expect_frame(const char *module, uint64_t began_unix_ns, uintptr_t address, const char *expected)
{
    struct recording recording;
    struct frames frames;
    char text[FRAMES_TEXT];

    record(module, began_unix_ns, &recording);
    TEST_ASSERT_TRUE(frames_open(&frames, &recording));
    frames_text(&frames, address, text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, strncmp(text, expected, strlen(expected)), text);
    frames_close(&frames);
    recording_close(&recording);
}

static void test_functions_have_names(void)
{
    uintptr_t (*volatile known)(void) = recording_functions_known;
    const uintptr_t here = known();
    char module[512];

    find_module(here, module);
    expect_frame(module, UINT64_MAX, here, "test_functions_have_names (recording_functions)");
    expect_frame(module, UINT64_MAX, (uintptr_t)known + 1, "recording_functions_known (recording_functions)");
}

static void test_file_that_was_changed_since_has_none(void)
{
    const uintptr_t here = recording_functions_known();
    char module[512];

    find_module(here, module);
    expect_frame(module, UINT64_C(1000000000), here, "recording_functions+0x");
}

static void test_what_is_not_known_is_a_number(void)
{
    expect_frame("10 20 0 /nonexistent/lib.so", 0, 0x18, "lib.so+0x8");
    expect_frame("10 20 0 /nonexistent/lib.so", 0, 0x20, "0x20");
    expect_frame("nonsense", 0, 0x20, "0x20");
    expect_frame("20 10 0 /nonexistent/lib.so", 0, 0x18, "0x18");
}

static void test_files_that_are_no_elf_files_have_none(void)
{
    static const char text[] =
        "\177ELF and then something else, which is long enough for a header of an ELF file";

    TEST_ASSERT_FALSE(functions_open(&functions, "/dev/zero", UINT64_MAX));
    TEST_ASSERT_FALSE(functions_open(&functions, "/etc/passwd", UINT64_MAX));
    TEST_ASSERT_FALSE(functions_parse(&functions, text, sizeof(text)));
    TEST_ASSERT_FALSE(functions_find(&functions, 0, name));
}

/* Reads this program, whose symbols are all made to be no functions. */
static void test_a_file_without_functions_has_none(void)
{
    FILE *file = fopen("/proc/self/exe", "re");
    Elf64_Ehdr header;
    long size;

    TEST_ASSERT_NOT_NULL(file);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    unsigned char *bytes = malloc((size_t)size);
    TEST_ASSERT_EQUAL_size_t((size_t)size, fread(bytes, 1, (size_t)size, file));
    fclose(file);
    memcpy(&header, bytes, sizeof(header));
    for (int i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;

        memcpy(&section, bytes + header.e_shoff + (size_t)i * sizeof(section), sizeof(section));
        for (size_t at = 0; (section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM) &&
                            at < section.sh_size / sizeof(Elf64_Sym);
             at++)
            bytes[section.sh_offset + at * sizeof(Elf64_Sym) + offsetof(Elf64_Sym, st_info)] = 0;
    }
    TEST_ASSERT_FALSE(functions_parse(&functions, bytes, (size_t)size));
    TEST_ASSERT_NULL(functions.entries);
    functions_close(&functions); /* frees nothing twice */
    free(bytes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_functions_have_names);
    RUN_TEST(test_file_that_was_changed_since_has_none);
    RUN_TEST(test_what_is_not_known_is_a_number);
    RUN_TEST(test_files_that_are_no_elf_files_have_none);
    RUN_TEST(test_a_file_without_functions_has_none);
    return UNITY_END();
}
