/* hooks: the list of our hooks and of the driver's functions that need none. The hooks are places only: none
 * is called here. */
#include "interpose/hook/hooks.h"

#include <string.h>
#include <unity.h>

#define HOOK(symbol, type)                                                                                   \
    __asm__(".pushsection .data\n.globl " #symbol "\n" #symbol ": .byte 0\n.popsection\n");
#define CALL(symbol, type)
#include "interpose/driver/hooks.def"

static char drivers_places[8];

void setUp(void) {}

void tearDown(void) {}

static void test_a_hook_is_found_by_its_whole_name(void)
{
    TEST_ASSERT_EQUAL_PTR((void *)cuMemAlloc_v2, hooks_find("cuMemAlloc_v2"));
    TEST_ASSERT_EQUAL_PTR((void *)cuMemFree_v2, hooks_find("cuMemFree_v2"));
    TEST_ASSERT_NULL(hooks_find("cuMemAlloc_v"));
    TEST_ASSERT_NULL(hooks_find("cuMemAlloc_v22"));
    TEST_ASSERT_NULL(hooks_find(""));
}

static void test_a_hook_is_found_by_the_drivers_address(void)
{
    memcpy(&driver_entries.cuMemAlloc_v2, &(void *){&drivers_places[0]}, sizeof(void *));
    memcpy(&driver_entries.cuMemFree_v2, &(void *){&drivers_places[1]}, sizeof(void *));
    TEST_ASSERT_EQUAL_PTR((void *)cuMemAlloc_v2, hooks_for(&drivers_places[0]));
    TEST_ASSERT_EQUAL_PTR((void *)cuMemFree_v2, hooks_for(&drivers_places[1]));
    TEST_ASSERT_EQUAL_PTR_MESSAGE(&drivers_places[2], hooks_for(&drivers_places[2]), "one without a hook");
}

static void test_our_own_hooks_are_known(void)
{
#define HOOK(symbol, type) TEST_ASSERT_TRUE_MESSAGE(hooks_own((const void *)symbol), #symbol);
#define CALL(symbol, type)
#include "interpose/driver/hooks.def"
    TEST_ASSERT_FALSE(hooks_own(&drivers_places[0]));
    TEST_ASSERT_FALSE(hooks_own(NULL));
}

static void test_every_quiet_name_is_found_and_none_has_a_hook(void)
{
#define QUIET(symbol)                                                                                        \
    TEST_ASSERT_TRUE_MESSAGE(hooks_quiet(#symbol), #symbol);                                                 \
    TEST_ASSERT_NULL_MESSAGE(hooks_find(#symbol), #symbol);
#include "interpose/hook/quiet.def"
#undef QUIET
    TEST_ASSERT_FALSE(hooks_quiet("cuMemAlloc_v2"));
    TEST_ASSERT_FALSE(hooks_quiet("cuFromTheFuture"));
    TEST_ASSERT_FALSE(hooks_quiet(""));
}

/* Every program with the runtime of CUDA 13.4 looks these up at its start, where the driver has them. One in
 * no list would end the reliance on the order of streams and on what is known of kernels. */
static void test_what_drivers_have_got_since_is_known(void)
{
    static const char *const names[] = {
        /* 13.1 */
        "cuMulticastBindMem_v2", "cuMulticastBindAddr_v2", "cuGraphNodeGetContainingGraph",
        "cuGraphNodeGetLocalId", "cuGraphNodeGetToolsId", "cuGraphGetId", "cuGraphExecGetId",
        "cuDevSmResourceSplit", "cuStreamGetDevResource",
        /* 13.2 */
        "cuKernelGetParamCount", "cuMemcpyWithAttributesAsync", "cuMemcpy3DWithAttributesAsync",
        "cuStreamBeginCaptureToCig", "cuStreamEndCaptureToCig", "cuFuncGetParamCount", "cuLaunchHostFunc_v2",
        "cuGraphNodeGetParams", "cuCoredumpRegisterStartCallback", "cuCoredumpRegisterCompleteCallback",
        "cuCoredumpDeregisterStartCallback", "cuCoredumpDeregisterCompleteCallback",
        /* 13.3 */
        "cuLogicalEndpointIdReserve", "cuLogicalEndpointIdRelease", "cuLogicalEndpointCreate",
        "cuLogicalEndpointAddDevice", "cuLogicalEndpointDestroy", "cuLogicalEndpointBindAddr",
        "cuLogicalEndpointBindMem", "cuLogicalEndpointUnbind", "cuLogicalEndpointExport",
        "cuLogicalEndpointImport", "cuLogicalEndpointGetLimits", "cuLogicalEndpointQuery",
        "cuStreamBeginRecaptureToGraph",
        /* 13.4 */
        "cuDeviceGetFabricClusterUuid", "cuDeviceGetCliqueCount", "cuDeviceGetCliqueInfo",
        "cuMemGetLocationInfo", "cuGraphAddNode_v3", "cuGraphNodeSetParams_v2",
        "cuCheckpointOperationComplete"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        TEST_ASSERT_TRUE_MESSAGE(hooks_quiet(names[i]) != (hooks_find(names[i]) != NULL), names[i]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_hook_is_found_by_its_whole_name);
    RUN_TEST(test_a_hook_is_found_by_the_drivers_address);
    RUN_TEST(test_our_own_hooks_are_known);
    RUN_TEST(test_every_quiet_name_is_found_and_none_has_a_hook);
    RUN_TEST(test_what_drivers_have_got_since_is_known);
    return UNITY_END();
}
