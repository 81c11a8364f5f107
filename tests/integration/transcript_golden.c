/* transcript_golden: simgpu answers as the real driver did.
 *
 * tests/gpu/golden holds the transcripts of a real card (tools/gpu-check --record). Every line must be the
 * same; there is no list of exceptions. Skipped (77) while nothing is recorded.
 */
#include "transcript_support.h"

#include "spawn.h"
#include "unity.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void setUp(void);
void tearDown(void);

void setUp(void) {}

void tearDown(void) {}

static void compare(const char *path, enum transcript_program program)
{
    char *golden = transcript_read_file(path);
    TEST_ASSERT_NOT_NULL_MESSAGE(golden, path);
    char *got = transcript_take(&(struct transcript_run){.program = program, .lookup = "dlsym"});
    transcript_assert_equal(golden, "real driver", got, "simgpu");
    free(golden);
    free(got);
}

static void test_simgpu_answers_as_the_real_driver(void)
{
    compare(TRANSCRIPT_GOLDEN "/driver.txt", TRANSCRIPT_DRIVER);
}

static void test_the_simulated_runtime_answers_as_the_real_one(void)
{
    compare(TRANSCRIPT_GOLDEN "/transcript_rt.txt", TRANSCRIPT_RUNTIME);
}

int main(void)
{
    if (access(TRANSCRIPT_GOLDEN "/driver.txt", R_OK) ||
        access(TRANSCRIPT_GOLDEN "/transcript_rt.txt", R_OK)) {
        puts("skipped: nothing is recorded from a real card yet (tools/gpu-check --record)");
        return SPAWN_SKIP;
    }
    UNITY_BEGIN();
    RUN_TEST(test_simgpu_answers_as_the_real_driver);
    RUN_TEST(test_the_simulated_runtime_answers_as_the_real_one);
    return UNITY_END();
}
