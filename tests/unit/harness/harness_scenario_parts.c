/* The parts of the scenarios that need no run: the search for the border between cards that fail and cards
 * that work, tables, and the sections of docs/benchmarks.md. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/scenario/scenario_docs.h"
#include "harness/scenario/scenario_ladder.h"
#include "harness/scenario/scenario_ladder_climb.h"
#include "harness/scenario/scenario_results.h"
#include "harness/scenario/scenario_search.h"
#include "harness/scenario/scenario_table.h"
#include "unity.h"

void setUp(void) {}

void tearDown(void) {}

/* ---- the search ---- */

struct border {
    uint64_t least; /* sizes from here on work */
    unsigned stop_after;
    unsigned asked;
};

static enum search_answer ask(uint64_t size, void *arg)
{
    struct border *border = arg;

    if (border->stop_after && ++border->asked > border->stop_after)
        return SEARCH_STOP;
    return size >= border->least ? SEARCH_WORKS : SEARCH_FAILS;
}

static void expect_border(uint64_t least, uint64_t low, uint64_t high)
{
    struct border border = {.least = least};
    struct search search = {.grain = 2, .most = 64, .limit = 100000};

    search_run(&search, low, high, ask, &border);
    TEST_ASSERT_EQUAL_UINT64((least + 1) / 2 * 2, search.works);
    TEST_ASSERT_EQUAL_UINT64(search.works - 2, search.fails);
}

static void test_search_finds_the_border_wherever_it_is(void)
{
    for (uint64_t least = 3; least < 400; least++)
        expect_border(least, 100, 200);
    expect_border(90000, 100, 200);
    expect_border(150, 200, 100); /* a guess the wrong way round */
}

static void test_search_that_nothing_fails_says_so(void)
{
    struct border border = {.least = 0};
    struct search search = {.grain = 2, .most = 64, .limit = 100000};

    search_run(&search, 100, 200, ask, &border);
    TEST_ASSERT_EQUAL_UINT64(0, search.fails);
    TEST_ASSERT_EQUAL_UINT64(2, search.works);
}

static void test_search_that_nothing_works_ends_at_the_limit(void)
{
    struct border border = {.least = UINT64_MAX};
    struct search search = {.grain = 2, .most = 64, .limit = 1000};

    search_run(&search, 100, 200, ask, &border);
    TEST_ASSERT_EQUAL_UINT64(1000, search.fails);
    TEST_ASSERT_EQUAL_UINT64(0, search.works);
}

static void test_search_keeps_what_it_found_when_it_is_stopped(void)
{
    struct border border = {.least = 150, .stop_after = 3};
    struct search search = {.grain = 2, .most = 64, .limit = 1000};

    search_run(&search, 100, 200, ask, &border);
    TEST_ASSERT_EQUAL_UINT64(100, search.fails);
    TEST_ASSERT_TRUE(search.works >= 150 && search.works <= 200);
}

static void test_search_makes_no_more_tries_than_allowed(void)
{
    struct border border = {.least = 777};
    struct search search = {.grain = 1, .most = 5, .limit = 1 << 20};

    search_run(&search, 1, 1 << 19, ask, &border);
    TEST_ASSERT_EQUAL_UINT(5, search.tries);
}

/* ---- tables ---- */

static void test_tables_align_and_escape(void)
{
    struct table table;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    table_begin(&table, "way|result");
    table_row(&table, "a|b");
    table_set(&table, 1, "%d ms", 3);
    table_row(&table, "long name");
    table_fill(&table);
    table_set(&table, 7, "beyond the columns");
    table_print(&table, out);
    table_print_markdown(&table, out);
    TEST_ASSERT_EQUAL_INT(0, fclose(out));
    TEST_ASSERT_EQUAL_STRING("way        result\na|b        3 ms\nlong name  -\n"
                             "| way | result |\n|---|---|\n| a\\|b | 3 ms |\n| long name | - |\n",
                             text);
    free(text);
}

static void test_tables_take_no_more_than_they_hold(void)
{
    static struct table table;
    char longer[4 * TABLE_CELL];

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    table_begin(&table, "a|b|c|d|e|f|g|h|i|j");
    TEST_ASSERT_EQUAL_UINT(TABLE_COLUMNS, table.columns);
    for (int i = 0; i < 2 * TABLE_ROWS; i++)
        table_row(&table, "%s", longer);
    TEST_ASSERT_EQUAL_UINT(TABLE_ROWS, table.rows);
    TEST_ASSERT_EQUAL_UINT(TABLE_CELL - 1, strlen(table.cell[TABLE_ROWS - 1][0]));
}

/* ---- the ladder ---- */

#define MIB (UINT64_C(1) << 20)

static void test_rungs_fall_in_even_ratios_and_do_not_coincide(void)
{
    uint64_t sizes[4];

    TEST_ASSERT_EQUAL_UINT(3, ladder_sizes(25 * MIB, 100 * MIB, 2 * MIB, 3, sizes));
    TEST_ASSERT_EQUAL_UINT64(100 * MIB, sizes[0]);
    TEST_ASSERT_EQUAL_UINT64(50 * MIB, sizes[1]);
    TEST_ASSERT_EQUAL_UINT64(26 * MIB, sizes[2]); /* no smaller than asked for */
    TEST_ASSERT_EQUAL_UINT(2, ladder_sizes(98 * MIB, 100 * MIB, 2 * MIB, 4, sizes));
    TEST_ASSERT_EQUAL_UINT(1, ladder_sizes(100 * MIB, 100 * MIB, 2 * MIB, 4, sizes));
}

#define ONCE(ms)                                                                                             \
    {                                                                                                        \
        {ms}, 1                                                                                              \
    }
#define IN_TURNS(a, b, c)                                                                                    \
    {                                                                                                        \
        {a, b, c}, 3                                                                                         \
    }

static const struct ladder_figures figures[] = {
    {.smallest = 80 * MIB, .on = {ONCE(50), ONCE(50)}},                     /* needs a larger card */
    {.smallest = 64 * MIB, .on = {ONCE(30), ONCE(30), ONCE(31)}},           /* as good */
    {.smallest = 60 * MIB, .on = {ONCE(45), ONCE(45), ONCE(45), ONCE(55)}}, /* a smaller card, but slow */
    {.smallest = 62 * MIB,
     .on = {ONCE(40), ONCE(36), ONCE(30), ONCE(35)},
     .capped = true},                                                             /* gpucap's best */
    {.smallest = 64 * MIB, .on = {ONCE(20), ONCE(20), ONCE(20)}, .capped = true}, /* gpucap, a larger card */
    {.smallest = 0},                                                              /* does not train */
    {.smallest = 64 * MIB, .on = {ONCE(30), ONCE(30), ONCE(50)}},                 /* slow where both train */
    {.smallest = 80 * MIB, .fails = 60 * MIB, .on = {ONCE(30), ONCE(30)}}, /* a smaller card may do as well */
    {.smallest = 80 * MIB, .fails = 64 * MIB, .on = {ONCE(30), ONCE(30)}}, /* none that is as small */
};
enum { FIGURES = sizeof(figures) / sizeof(*figures) };

static void test_a_native_way_does_as_well_only_in_card_and_time(void)
{
    struct ladder_verdict verdict;

    ladder_judge(figures, FIGURES, 2 * MIB, -1, &verdict);
    TEST_ASSERT_EQUAL_INT(3, verdict.gpucap);
    TEST_ASSERT_EQUAL_INT(2, verdict.native);
    for (unsigned i = 0; i < FIGURES; i++) {
        TEST_ASSERT_EQUAL_INT(i == 1 || i == 7, verdict.as_good[i]);
        TEST_ASSERT_EQUAL_INT(i == 2 || i == 6, verdict.as_small[i]);
    }
    TEST_ASSERT_EQUAL_INT(2, ladder_common_rung(&figures[1], &figures[3]));
    TEST_ASSERT_EQUAL_INT(-1, ladder_common_rung(&figures[5], &figures[3]));
    TEST_ASSERT_TRUE(ladder_open(&figures[7], 2 * MIB));
    TEST_ASSERT_FALSE(ladder_open(&figures[7], 20 * MIB));
    ladder_judge(figures, 3, 2 * MIB, -1, &verdict);
    TEST_ASSERT_EQUAL_INT(-1, verdict.gpucap);
    TEST_ASSERT_FALSE(verdict.as_good[1] || verdict.as_small[2]);
    ladder_judge(figures, FIGURES, 2 * MIB, 4, &verdict);
    TEST_ASSERT_EQUAL_INT(4, verdict.gpucap);
}

static void test_table_and_picture_mark_sizes_that_are_only_bounds(void)
{
    static const struct ladder_way ways[] = {
        {.name = "known"}, {.name = "perhaps less"}, {.name = "more"}, {.name = "capped", .capped = true}};
    static struct scenario_result result;
    struct scenario scenario = {.result = &result};
    static struct climb climb = {.rung = {1024 * MIB, 90 * MIB},
                                 .rungs = 2,
                                 .grain = 2 * MIB,
                                 .best = 3,
                                 .figures = {{.smallest = 80 * MIB, .fails = 78 * MIB, .on = {ONCE(50)}},
                                             {.smallest = 90 * MIB, .fails = 70 * MIB, .on = {ONCE(50)}},
                                             {.smallest = 1024 * MIB, .fails = 90 * MIB, .on = {ONCE(50)}},
                                             {.smallest = 60 * MIB, .capped = true, .on = {ONCE(50)}}}};

    climb.scenario = &scenario;
    climb.plan = &(struct ladder_plan){.ways = ways, .count = 4};
    climb_say(&climb);
    TEST_ASSERT_EQUAL_STRING("80.0 MiB", result.table.cell[0][1]);
    TEST_ASSERT_EQUAL_STRING("at most 90.0 MiB", result.table.cell[1][1]);
    TEST_ASSERT_EQUAL_STRING("more than 90.0 MiB", result.table.cell[2][1]);
    TEST_ASSERT_EQUAL_STRING("80", result.panels[0].note[0]);
    TEST_ASSERT_EQUAL_STRING("<=90", result.panels[0].note[1]);
    TEST_ASSERT_EQUAL_STRING(">90", result.panels[0].note[2]);
}

static void test_all_train_from_a_card_only_if_they_do_on_every_larger_one(void)
{
    static const struct scenario_total all = {.count = 4, .trained = 4}, some = {.count = 4, .trained = 3};
    static const bool done[] = {true, true, true}, not_the_first[] = {false, true, true};

    TEST_ASSERT_EQUAL_INT(2, scenario_all_from((struct scenario_total[]){all, all, all}, done, 3));
    TEST_ASSERT_EQUAL_INT(1, scenario_all_from((struct scenario_total[]){all, all, some}, done, 3));
    TEST_ASSERT_EQUAL_INT(0, scenario_all_from((struct scenario_total[]){all, some, all}, done, 3));
    TEST_ASSERT_EQUAL_INT(-1, scenario_all_from((struct scenario_total[]){some, all, all}, done, 3));
    TEST_ASSERT_EQUAL_INT(2, scenario_all_from((struct scenario_total[]){some, all, all}, not_the_first, 3));
}

static void test_one_run_or_one_slow_turn_makes_no_way_slower(void)
{
    static const struct ladder_times ours = IN_TURNS(100, 104, 98);
    static const struct {
        struct ladder_times times;
        bool slower;
    } cases[] = {
        {IN_TURNS(110, 112, 108), true},
        {IN_TURNS(103, 107, 101), false}, /* by 3 % only */
        {IN_TURNS(130, 103, 130), false}, /* once it was not slower */
        {IN_TURNS(101, 150, 101), false}, /* one slow turn, load perhaps */
        {ONCE(145), false},
        {ONCE(155), true},
        {{{0}, 0}, false},
    };

    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        TEST_ASSERT_EQUAL_INT(cases[i].slower, ladder_slower(&cases[i].times, &ours));
    TEST_ASSERT_EQUAL_DOUBLE(31, ladder_time(&(struct ladder_figures){.on = {IN_TURNS(90, 30, 31)}}, 0));
    TEST_ASSERT_TRUE(isnan(ladder_time(&figures[5], 0)));
}

static void test_a_search_goes_on_from_what_is_known(void)
{
    struct border border = {.least = 150};
    struct search search = {.grain = 2, .most = 64, .fails = 100, .works = 200};

    search_narrow(&search, ask, &border);
    TEST_ASSERT_EQUAL_UINT64(150, search.works);
    TEST_ASSERT_EQUAL_UINT64(148, search.fails);
    TEST_ASSERT_LESS_OR_EQUAL_UINT(6, search.tries);
}

/* ---- sections ---- */

static void expect_text(const char *expected, char *text)
{
    TEST_ASSERT_NOT_NULL(text);
    TEST_ASSERT_EQUAL_STRING(expected, text);
    free(text);
}

static void test_a_section_replaces_only_its_own(void)
{
    const char *old = "head\n<!-- begin a x -->\nold\n<!-- end a x -->\n"
                      "<!-- begin a y -->\nother\n<!-- end a y -->\ntail\n";

    expect_text("head\n<!-- begin a x -->\nnew\n<!-- end a x -->\n"
                "<!-- begin a y -->\nother\n<!-- end a y -->\ntail\n",
                docs_replace(old, "a x", "new\n", true));
}

static void test_a_new_section_goes_to_the_end_where_that_is_wanted(void)
{
    expect_text("head\n\n<!-- begin k -->\ns\n<!-- end k -->\n", docs_replace("head\n", "k", "s\n", true));
    expect_text("<!-- begin k -->\ns\n<!-- end k -->\n", docs_replace("", "k", "s\n", true));
    TEST_ASSERT_NULL(docs_replace("head\n", "k", "s\n", false));
    TEST_ASSERT_NULL(docs_replace("<!-- begin k -->\nno end\n", "k", "s\n", false));
}

static void test_a_list_of_names_ends_with_dots_where_there_is_no_room(void)
{
    char cell[20] = "";

    scenario_list(cell, sizeof(cell), "naive");
    scenario_list(cell, sizeof(cell), "cache");
    TEST_ASSERT_EQUAL_STRING("naive, cache", cell);
    scenario_list(cell, sizeof(cell), "async");
    TEST_ASSERT_EQUAL_STRING("naive, cache, async", cell);
    scenario_list(cell, sizeof(cell), "arena");
    TEST_ASSERT_EQUAL_STRING("naive, cache, ...", cell);
    scenario_list(cell, sizeof(cell), "static");
    TEST_ASSERT_EQUAL_STRING("naive, cache, ...", cell);
}

static void test_rows_of_the_readme_have_at_most_100_columns(void)
{
    static const char subject[SCENARIO_SUBJECT] = "a subject 21 bytes ok";
    static struct scenario_result result = {.letter = 'a', .subject = subject};
    const struct docs_origin origin = {.device = "simgpu", .slug = "simgpu"};

    memset(result.verdict, 'x', sizeof(result.verdict) - 1);
    memset(result.brief_native, 'x', sizeof(result.brief_native) - 1);
    memset(result.brief_gpucap, 'x', sizeof(result.brief_gpucap) - 1);
    memset(result.brief_verdict, 'x', sizeof(result.brief_verdict) - 1);
    char *text = docs_summary(&origin, &result, 1);
    TEST_ASSERT_NOT_NULL(text);
    const char *row = strstr(text, "| (a) ");
    TEST_ASSERT_NOT_NULL_MESSAGE(row, text);
    TEST_ASSERT_TRUE_MESSAGE(strcspn(row, "\n") <= 100, row);
    free(text);
}

/* ---- results in a file ---- */

static void fill_result(struct scenario_result *result)
{
    memset(result, 0, sizeof(*result));
    result->letter = 'd';
    result->seconds = 12.5;
    table_begin(&result->table, "memory|card");
    table_row(&result->table, "tab\there");
    table_set(&result->table, 1, "5.96 GiB");
    scenario_note(result, "a note");
    scenario_panel(result, true, "steps/s");
    snprintf(result->panels[0].where, sizeof(result->panels[0].where), "card of 1 GiB");
    scenario_row(result, "naive", COLOUR_NATIVE);
    scenario_bar(result, 0, 1.5, "1.5");
    snprintf(result->verdict, sizeof(result->verdict), "nowhere");
}

static char *saved(const struct docs_origin *origin, const struct scenario_result *results, unsigned count)
{
    char path[] = "/tmp/scenario_parts_XXXXXX";
    const int file = mkstemp(path);

    TEST_ASSERT_TRUE(file >= 0);
    close(file);
    TEST_ASSERT_EQUAL_INT(0, results_save(path, origin, results, count));
    char *text = docs_read(path);
    unlink(path);
    TEST_ASSERT_NOT_NULL(text);
    return text;
}

static void test_results_come_back_from_their_file(void)
{
    static struct scenario_result results[2], again[2];
    const struct docs_origin origin = {
        .device = "NVIDIA H200, driver 1", .slug = "nvidia-h200", .date = "today", .busy = 2.5};
    struct docs_origin read;
    unsigned count, line;

    fill_result(&results[0]);
    results[1].letter = 'e';
    snprintf(results[1].skipped, sizeof(results[1].skipped), "no time");
    char *text = saved(&origin, results, 2);
    TEST_ASSERT_EQUAL_INT(0, results_parse(text, &read, again, 2, &count, &line));
    TEST_ASSERT_EQUAL_UINT(2, count);
    TEST_ASSERT_EQUAL_STRING("nvidia-h200", read.slug);
    TEST_ASSERT_EQUAL_STRING("tab here", again[0].table.cell[0][0]);
    TEST_ASSERT_EQUAL_STRING("naive", again[0].row[0]);
    TEST_ASSERT_EQUAL_DOUBLE(1.5, again[0].panels[0].value[0]);
    TEST_ASSERT_EQUAL_STRING("no time", again[1].skipped);
    char *second = saved(&read, again, 2);
    TEST_ASSERT_EQUAL_STRING(text, second);
    TEST_ASSERT_EQUAL_INT(-EINVAL, results_parse(text, &read, again, 1, &count, &line)); /* no room */
    free(second);
    free(text);
}

static void test_a_file_that_is_no_result_is_refused(void)
{
    static const char *const bad[] = {
        "",
        "something else\n",
        "gpucap-scenarios 1\n",                 /* no slug */
        "gpucap-scenarios 1\nslug ../../etc\n", /* would leave its folder */
        "gpucap-scenarios 1\nslug a\nscenario ab\n",
        "gpucap-scenarios 1\nslug a\nscenario a\ncells x\n",     /* a row without a head */
        "gpucap-scenarios 1\nslug a\nscenario a\nbar 0\t1\tx\n", /* a bar without a row */
        "gpucap-scenarios 1\nslug a\nscenario a\npanel 1\t0\tt\tw\nrow 0\tn\nbar 0\tnan\tx\n",
        "gpucap-scenarios 1\nslug a\nscenario a\nwhat is this\n",
    };
    static struct scenario_result results[2];
    struct docs_origin origin;
    unsigned count, line;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, results_parse(bad[i], &origin, results, 2, &count, &line),
                                      bad[i]);
}

static void test_what_was_skipped_is_named_and_keeps_its_old_section(void)
{
    static struct scenario_result results[2];
    const struct docs_origin origin = {.device = "simgpu", .slug = "simgpu"};

    fill_result(&results[0]);
    results[0].subject = "sizes that change";
    results[1].letter = 'e';
    results[1].subject = "largest batch";
    snprintf(results[1].skipped, sizeof(results[1].skipped), "no time");
    char *text = docs_summary(&origin, results, 2);
    TEST_ASSERT_NOT_NULL(text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "| (d) sizes that change |"), text);
    TEST_ASSERT_NULL_MESSAGE(strstr(text, "| (e)"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "Not run to the end: (e) largest batch.\n"), text);
    free(text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_search_finds_the_border_wherever_it_is);
    RUN_TEST(test_search_that_nothing_fails_says_so);
    RUN_TEST(test_search_that_nothing_works_ends_at_the_limit);
    RUN_TEST(test_search_keeps_what_it_found_when_it_is_stopped);
    RUN_TEST(test_search_makes_no_more_tries_than_allowed);
    RUN_TEST(test_a_search_goes_on_from_what_is_known);
    RUN_TEST(test_rungs_fall_in_even_ratios_and_do_not_coincide);
    RUN_TEST(test_a_native_way_does_as_well_only_in_card_and_time);
    RUN_TEST(test_table_and_picture_mark_sizes_that_are_only_bounds);
    RUN_TEST(test_all_train_from_a_card_only_if_they_do_on_every_larger_one);
    RUN_TEST(test_one_run_or_one_slow_turn_makes_no_way_slower);
    RUN_TEST(test_results_come_back_from_their_file);
    RUN_TEST(test_a_file_that_is_no_result_is_refused);
    RUN_TEST(test_what_was_skipped_is_named_and_keeps_its_old_section);
    RUN_TEST(test_tables_align_and_escape);
    RUN_TEST(test_tables_take_no_more_than_they_hold);
    RUN_TEST(test_a_list_of_names_ends_with_dots_where_there_is_no_room);
    RUN_TEST(test_rows_of_the_readme_have_at_most_100_columns);
    RUN_TEST(test_a_section_replaces_only_its_own);
    RUN_TEST(test_a_new_section_goes_to_the_end_where_that_is_wanted);
    return UNITY_END();
}
