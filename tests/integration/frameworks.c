/* frameworks: well-known programs' ways with memory work under the library as they do natively. Each is a
 * scenario of prog_frameworks, which checks itself.
 */
#define PROGRAM "prog_frameworks"
#include "every_way.h"

#define CAP "700M"

void setUp(void) {}

void tearDown(void) {}

static void test_an_engine_that_sleeps_finds_its_weights_again(void)
{
    as_natively("sleeps");
    run("sleeps", DEFERRED, CAP);
}

static void test_a_graph_for_each_token_computes_on_a_pool_that_grows(void)
{
    as_natively("tokens");
    run("tokens", DEFERRED, CAP);
}

static void test_a_decoders_context_is_current_only_during_a_call(void)
{
    as_natively("decodes");
    run("decodes", DEFERRED, CAP);
}

static void test_nearly_all_that_is_told_as_free_can_be_had_as_every_kind(void)
{
    as_natively("takes_all");
    run("takes_all", STRICT, CAP);
    run("takes_all", DEFERRED, CAP);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_an_engine_that_sleeps_finds_its_weights_again);
    RUN_TEST(test_a_graph_for_each_token_computes_on_a_pool_that_grows);
    RUN_TEST(test_a_decoders_context_is_current_only_during_a_call);
    RUN_TEST(test_nearly_all_that_is_told_as_free_can_be_had_as_every_kind);
    return UNITY_END();
}
