/* The option table: defaults, both ways to write a value, limits, and help that names every option. */
#include <stdlib.h>
#include <string.h>

#include "harness/base/train_options_table.h"
#include "unity.h"

enum { MAX_ARGUMENTS = 8 };

static struct train_options options;

void setUp(void) {}

void tearDown(void) {}

/* Parses up to MAX_ARGUMENTS arguments, the last one followed by NULL. */
static enum status parse(const char *const *arguments)
{
    char *argv[MAX_ARGUMENTS + 1] = {(char *)(uintptr_t) "train"};
    int argc = 1;

    for (; arguments[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
    return train_options_parse(&options, argc, argv);
}

#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

static void test_defaults_come_from_the_table(void)
{
    TEST_ASSERT_EQUAL_INT(STATUS_OK, PARSE(NULL));
    TEST_ASSERT_EQUAL_UINT64(100, options.steps);
    TEST_ASSERT_EQUAL_UINT64(64, options.batch);
    TEST_ASSERT_EQUAL_UINT64(1, options.hidden.count);
    TEST_ASSERT_EQUAL_UINT64(256, options.hidden.item[0]);
    TEST_ASSERT_EQUAL_UINT64(ALLOC_NAIVE, options.alloc);
    TEST_ASSERT_NULL(options.data);
    TEST_ASSERT_FALSE(options.quiet);
}

static void test_values_may_follow_or_be_joined(void)
{
    TEST_ASSERT_EQUAL_INT(STATUS_OK, PARSE("--steps=7", "--batch", "3", "--hidden", "8,9,10", "--quiet"));
    TEST_ASSERT_EQUAL_UINT64(7, options.steps);
    TEST_ASSERT_EQUAL_UINT64(3, options.batch);
    TEST_ASSERT_EQUAL_UINT64(3, options.hidden.count);
    TEST_ASSERT_EQUAL_UINT64(10, options.hidden.item[2]);
    TEST_ASSERT_TRUE(options.quiet);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, PARSE("--alloc=static", "--fraction=.5", "--data", "some/folder"));
    TEST_ASSERT_EQUAL_UINT64(ALLOC_STATIC, options.alloc);
    TEST_ASSERT_TRUE(options.fraction == 0.5);
    TEST_ASSERT_EQUAL_STRING("some/folder", options.data);
}

static void test_bad_values_are_refused(void)
{
    static const char *const bad[] = {
        "--batch=0",
        "--steps=",
        "--steps=-1",
        "--steps=1x",
        "--steps= 1",
        "--batch=1048577",
        "--batch=1e3",
        "--steps=99999999999999999999999",
        "--hidden=",
        "--hidden=1,",
        "--hidden=,1",
        "--hidden=0",
        "--hidden=65537",
        "--hidden=1,2,3,4,5,6,7,8,9",
        "--hidden=1;2",
        "--rate=nan",
        "--rate=inf",
        "--rate=-1",
        "--rate=0.1x",
        "--rate=0x1",
        "--classes=65537",
        "--fraction=0",
        "--fraction=1.01",
        "--alloc=",
        "--alloc=naiv",
        "--alloc=naive|arena",
        "--alloc=NAIVE",
        "--data=",
        "--quiet=1",
        "--step=1",
        "--stepss=1",
        "--",
        "-h",
        "extra",
        "--batch",
        "",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        TEST_ASSERT_EQUAL_INT_MESSAGE(STATUS_USAGE, PARSE(bad[i]), bad[i]);
}

static void test_sizes_have_units(void)
{
    TEST_ASSERT_EQUAL_INT(STATUS_OK, PARSE("--budget=3G", "--data-cache=512K"));
    TEST_ASSERT_EQUAL_UINT64(3ull << 30, options.budget);
    TEST_ASSERT_EQUAL_UINT64(512 << 10, options.data_cache);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, PARSE("--budget=77"));
    TEST_ASSERT_EQUAL_UINT64(77, options.budget);
    TEST_ASSERT_EQUAL_INT(STATUS_USAGE, PARSE("--budget=3X"));
    TEST_ASSERT_EQUAL_INT(STATUS_USAGE, PARSE("--budget=3GG"));
    TEST_ASSERT_EQUAL_INT(STATUS_USAGE, PARSE("--budget=G"));
    TEST_ASSERT_EQUAL_INT(STATUS_USAGE, PARSE("--budget=9999999T"));
}

static void test_a_pair_is_two_models(void)
{
    TEST_ASSERT_EQUAL_INT(STATUS_OK, PARSE("--pair", "resnet18", "gpt", "--steps=3"));
    TEST_ASSERT_TRUE(options.pair.given);
    TEST_ASSERT_EQUAL_UINT64(MODEL_RESNET18, options.pair.model[0]);
    TEST_ASSERT_EQUAL_UINT64(MODEL_GPT, options.pair.model[1]);
    TEST_ASSERT_EQUAL_UINT64(3, options.steps);
    TEST_ASSERT_EQUAL_INT(STATUS_OK, PARSE("--pair=cnn,unet"));
    TEST_ASSERT_EQUAL_UINT64(MODEL_CNN, options.pair.model[0]);
    TEST_ASSERT_EQUAL_UINT64(MODEL_UNET, options.pair.model[1]);
    TEST_ASSERT_EQUAL_INT(STATUS_USAGE, PARSE("--pair=cnn"));
    TEST_ASSERT_EQUAL_INT(STATUS_USAGE, PARSE("--pair", "cnn", "--steps=3"));
    TEST_ASSERT_EQUAL_INT(STATUS_USAGE, PARSE("--pair"));
}

static void test_help_names_every_mode_and_default(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    char name[16];

    train_options_print_help(out);
    fclose(out);
    TEST_ASSERT_NOT_NULL(strstr(text, "--alloc=naive|cache|arena|async|static"));
    TEST_ASSERT_NOT_NULL(strstr(text, "--steps=N"));
    TEST_ASSERT_NOT_NULL(strstr(text, "[100]"));
    free(text);
    TEST_ASSERT_EQUAL_STRING("naive", train_options_choice("alloc", ALLOC_NAIVE, name, sizeof(name)));
    TEST_ASSERT_EQUAL_STRING("static", train_options_choice("alloc", ALLOC_STATIC, name, sizeof(name)));
    TEST_ASSERT_EQUAL_STRING("gpt2-small",
                             train_options_choice("model", MODEL_GPT2_SMALL, name, sizeof(name)));
    TEST_ASSERT_EQUAL_STRING("fp16", train_options_choice("precision", PRECISION_FP16, name, sizeof(name)));
    TEST_ASSERT_EQUAL_STRING("threads", train_options_choice("pair-mode", PAIR_THREADS, name, sizeof(name)));
}

/* Dashes are \\- in a page. */
static void escape(const char *name, char *out)
{
    for (; *name; name++) {
        if (*name == '-')
            *out++ = '\\';
        *out++ = *name;
    }
    *out = '\0';
}

static void test_the_manual_page_names_every_option(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    char name[128], tag[160];

    train_options_print_manual(out);
    fclose(out);
    TEST_ASSERT_EQUAL_INT(0, strncmp(text, ".TH TRAIN 1 ", 12));
    for (size_t i = 0; i < train_options_table_size; i++) {
        const struct option_entry *entry = &train_options_table[i];

        escape(entry->name, name);
        snprintf(tag, sizeof(tag), "\n\\fB\\-\\-%s%s", name, entry->value_name ? "=\\fI" : "\\fR\n");
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, tag), entry->name);
    }
    free(text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_defaults_come_from_the_table);
    RUN_TEST(test_values_may_follow_or_be_joined);
    RUN_TEST(test_bad_values_are_refused);
    RUN_TEST(test_sizes_have_units);
    RUN_TEST(test_a_pair_is_two_models);
    RUN_TEST(test_help_names_every_mode_and_default);
    RUN_TEST(test_the_manual_page_names_every_option);
    return UNITY_END();
}
