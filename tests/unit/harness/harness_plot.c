/* Plots are well-formed XML whatever the names and numbers in them are. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/plot.h"
#include "unity.h"

#define DEPTH_MAX 16

static char path[64];

void setUp(void)
{
    snprintf(path, sizeof(path), "plot-%d.svg", (int)getpid());
}

void tearDown(void)
{
    unlink(path);
}

static char *read_back(void)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");

    TEST_ASSERT_NOT_NULL(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* One tag from '<' on: its end, or NULL when it is none. Attributes are quoted and hold no '<'. */
static const char *skip_tag(const char *at)
{
    bool quoted = false;

    for (at++; *at && (quoted || *at != '>'); at++) {
        if (*at == '"')
            quoted = !quoted;
        else if (*at == '<')
            return NULL;
    }
    return *at ? at : NULL;
}

static bool is_entity(const char *at)
{
    return !strncmp(at, "&lt;", 4) || !strncmp(at, "&gt;", 4) || !strncmp(at, "&amp;", 5);
}

/* Every element is closed by its own name, in order; nothing else looks like a tag. */
static void expect_well_formed(const char *text)
{
    char names[DEPTH_MAX][32];
    int depth = 0;
    bool seen = false;

    for (const char *at = text; *at; at++) {
        TEST_ASSERT_TRUE_MESSAGE(*at == '\n' || isprint((unsigned char)*at), "an odd byte");
        TEST_ASSERT_TRUE_MESSAGE(*at != '&' || is_entity(at), "a bare ampersand");
        if (*at != '<')
            continue;
        const char *end = skip_tag(at);
        TEST_ASSERT_NOT_NULL_MESSAGE(end, "a tag without end");
        if (at[1] == '/') {
            TEST_ASSERT_TRUE(depth > 0);
            depth--;
            TEST_ASSERT_EQUAL_STRING_LEN(names[depth], at + 2, strlen(names[depth]));
        } else if (end[-1] != '/') {
            TEST_ASSERT_TRUE(depth < DEPTH_MAX);
            TEST_ASSERT_EQUAL_INT(1, sscanf(at + 1, "%31[a-z]", names[depth]));
            depth++;
        }
        seen = true;
        at = end;
    }
    TEST_ASSERT_TRUE(seen);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, depth, "an element is not closed");
}

static void test_hostile_names_and_numbers_stay_data(void)
{
    struct plot plot;
    struct plot_frame frame = {
        .left = 100, .top = 40, .width = 300, .height = 200, .x_end = 10, .y_end = NAN};
    const struct plot_bar bars[] = {
        {"<script>&\"'", 3, "a > b", 0}, {"\033[2J\377", NAN, NULL, 7}, {"", INFINITY, "", 1}};

    TEST_ASSERT_EQUAL_INT(0, plot_open(&plot, path, 640, 480));
    plot_title(&plot, &frame, "</svg><text>");
    plot_axis(&plot, &frame, 1, "&");
    plot_legend(&plot, &frame, 0, "<", plot_colour(99));
    plot_curve_begin(&plot, "#000", NULL);
    plot_curve_point(&plot, &frame, INFINITY, -INFINITY);
    plot_curve_end(&plot);
    plot_bars(&plot, &frame, bars, 3);
    plot_bars(&plot, &frame, bars, 0);
    TEST_ASSERT_EQUAL_INT(0, plot_close(&plot));
    const char *text = read_back();
    expect_well_formed(text);
    TEST_ASSERT_NULL(strstr(text, "<script"));
    TEST_ASSERT_NULL(strstr(text, "nan"));
    TEST_ASSERT_NULL(strstr(text, "inf"));
}

static void test_bars_are_as_long_as_their_values(void)
{
    struct plot plot;
    struct plot_frame frame = {.left = 0, .top = 0, .width = 1000, .height = 100};
    const struct plot_bar bars[] = {{"whole", 10, NULL, 0}, {"half", 5, NULL, 0}};
    double whole, half;

    TEST_ASSERT_EQUAL_INT(0, plot_open(&plot, path, 100, 100));
    plot_bars(&plot, &frame, bars, 2);
    TEST_ASSERT_EQUAL_INT(0, plot_close(&plot));
    const char *at = strstr(read_back(), ">whole<");
    TEST_ASSERT_NOT_NULL(at);
    TEST_ASSERT_EQUAL_INT(1, sscanf(strstr(at, "width=\"") + 7, "%lf", &whole));
    at = strstr(at, ">half<");
    TEST_ASSERT_NOT_NULL(at);
    TEST_ASSERT_EQUAL_INT(1, sscanf(strstr(at, "width=\"") + 7, "%lf", &half));
    TEST_ASSERT_TRUE(fabs(whole - 2 * half) < 0.2 && whole > 100);
}

static void test_frames_with_one_scale_can_be_compared_and_the_picture_has_a_viewbox(void)
{
    struct plot plot;
    struct plot_frame frame = {
        .left = 0, .top = 0, .width = 1000, .height = 100, .x_end = 20, .note = 200, .scale = true};
    const struct plot_bar bar = {NULL, 10, "10", 0};
    double width;

    TEST_ASSERT_EQUAL_INT(0, plot_open(&plot, path, 640, 480));
    plot_bars(&plot, &frame, &bar, 1);
    TEST_ASSERT_EQUAL_INT(0, plot_close(&plot));
    const char *text = read_back();
    expect_well_formed(text);
    TEST_ASSERT_NOT_NULL(strstr(text, "viewBox=\"0 0 640 480\""));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, ">20</text>"), "the end of the scale");
    const char *rect = strstr(strstr(text, "<rect") + 1, "<rect"); /* the first one is the ground */
    TEST_ASSERT_EQUAL_INT(1, sscanf(strstr(rect, "width=\"") + 7, "%lf", &width));
    TEST_ASSERT_TRUE(fabs(width - 400) < 1); /* half of the 800 that the note leaves */
}

static void test_a_file_that_cannot_be_written_is_an_error(void)
{
    struct plot plot;

    TEST_ASSERT_EQUAL_INT(-ENOENT, plot_open(&plot, "no/such/folder/plot.svg", 1, 1));
    if (plot_open(&plot, "/dev/full", 1, 1) == 0)
        TEST_ASSERT_TRUE(plot_close(&plot) < 0);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_hostile_names_and_numbers_stay_data);
    RUN_TEST(test_bars_are_as_long_as_their_values);
    RUN_TEST(test_frames_with_one_scale_can_be_compared_and_the_picture_has_a_viewbox);
    RUN_TEST(test_a_file_that_cannot_be_written_is_an_error);
    return UNITY_END();
}
