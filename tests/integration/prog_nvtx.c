/* prog_nvtx: allocates under NVTX ranges of every kind, with NVIDIA's own header. Says what level each push
 * and pop returned; knows nothing of gpucap but gpucap_tag. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

#include "interpose/gpucap.h"
#include "interpose/hook/nvtx_abi.h"
#include "prog_check.h"

#define MIB ((size_t)1 << 20)

/* Our copy of the interface says what the header says. */
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(NVTX_CALLBACKS, NVTX_ETID_CALLBACKS);
SAME(NVTX_CORE, NVTX_CB_MODULE_CORE);
SAME(NVTX_CORE2, NVTX_CB_MODULE_CORE2);
SAME(NVTX_ASCII, NVTX_MESSAGE_TYPE_ASCII);
SAME(NVTX_UNICODE, NVTX_MESSAGE_TYPE_UNICODE);
SAME(NVTX_REGISTERED, NVTX_MESSAGE_TYPE_REGISTERED);
SAME(NVTX_RANGE_PUSH_EX, NVTX_CBID_CORE_RangePushEx);
SAME(NVTX_RANGE_PUSH_A, NVTX_CBID_CORE_RangePushA);
SAME(NVTX_RANGE_PUSH_W, NVTX_CBID_CORE_RangePushW);
SAME(NVTX_RANGE_POP, NVTX_CBID_CORE_RangePop);
SAME(NVTX_DOMAIN_RANGE_PUSH_EX, NVTX_CBID_CORE2_DomainRangePushEx);
SAME(NVTX_DOMAIN_RANGE_POP, NVTX_CBID_CORE2_DomainRangePop);
SAME(NVTX_DOMAIN_REGISTER_STRING_A, NVTX_CBID_CORE2_DomainRegisterStringA);
SAME(NVTX_DOMAIN_REGISTER_STRING_W, NVTX_CBID_CORE2_DomainRegisterStringW);
SAME(NVTX_DOMAIN_CREATE_A, NVTX_CBID_CORE2_DomainCreateA);
SAME(NVTX_DOMAIN_CREATE_W, NVTX_CBID_CORE2_DomainCreateW);
_Static_assert(sizeof(struct nvtx_event) == sizeof(nvtxEventAttributes_t) &&
                   offsetof(struct nvtx_event, size) == offsetof(nvtxEventAttributes_t, size) &&
                   offsetof(struct nvtx_event, message_type) ==
                       offsetof(nvtxEventAttributes_t, messageType) &&
                   offsetof(struct nvtx_event, message) == offsetof(nvtxEventAttributes_t, message),
               "event attributes");
_Static_assert(sizeof(struct nvtx_callbacks) == sizeof(NvtxExportTableCallbacks) &&
                   offsetof(struct nvtx_callbacks, get_module_function_table) ==
                       offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable),
               "callbacks");

/* A block whose size says which one it is. */
static void take(size_t mib)
{
    CUdeviceptr block;

    MUST(0, cuMemAlloc(&block, mib * MIB));
}

static nvtxEventAttributes_t event_of(int type)
{
    return (nvtxEventAttributes_t){
        .version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE, .messageType = type};
}

static void *other_thread(void *context)
{
    MUST(0, cuCtxSetCurrent(context));
    take(9);
    nvtxRangePushA("loader");
    take(10);
    nvtxRangePop();
    return NULL;
}

static void ranges(void)
{
    CUcontext context = prog_context(0);
    nvtxEventAttributes_t event = event_of(NVTX_MESSAGE_TYPE_ASCII);
    pthread_t thread;

    take(1);
    const int outer = nvtxRangePushA("forward");
    take(2);
    event.message.ascii = "layer 1";
    const int inner = nvtxRangePushEx(&event);
    take(3);
    nvtxRangePushEx(&(nvtxEventAttributes_t){.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE});
    take(4); /* a range without a name */
    nvtxRangePop();
    if (gpucap_tag)
        gpucap_tag("mine");
    take(5);
    if (gpucap_tag)
        gpucap_tag(NULL);
    take(6);
    const int inner_end = nvtxRangePop();
    take(7);
    MUST(0, pthread_create(&thread, NULL, other_thread, context));
    MUST(0, pthread_join(thread, NULL));
    const int outer_end = nvtxRangePop();
    take(8);
    printf("%d %d %d %d %d\n", outer, inner, inner_end, outer_end, nvtxRangePop());
}

static void domains(void)
{
    nvtxEventAttributes_t event = event_of(NVTX_MESSAGE_TYPE_REGISTERED);
    wchar_t name[1000] = {0}; /* more than counts */

    prog_context(0);
    nvtxDomainHandle_t first = nvtxDomainCreateA("first"), second = nvtxDomainCreateW(L"second");
    event.message.registered = nvtxDomainRegisterStringA(first, "registered");
    nvtxDomainRangePushEx(first, &event);
    take(1);
    event.message.registered = nvtxDomainRegisterStringW(second, L"breit \x00fc");
    nvtxDomainRangePushEx(second, &event);
    take(2);
    nvtxRangePushW(L"wide");
    take(3);
    nvtxDomainRangePop(first); /* not the innermost */
    take(4);
    nvtxRangePop();
    take(5);
    nvtxDomainRangePop(second);
    take(6);
    wmemset(name, L'x', sizeof(name) / sizeof(*name) - 1);
    nvtxRangePushW(name);
    take(7);
}

/* More names than there can be tags, and ranges deeper than are seen. */
static void many(void)
{
    char name[32];
    nvtxEventAttributes_t event = event_of(NVTX_MESSAGE_TYPE_REGISTERED);
    nvtxStringHandle_t last = NULL;

    prog_context(0);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "range %d", i);
        nvtxRangePushA(name);
        if (i % 2)
            nvtxRangePop();
    }
    take(1);
    for (int i = 0; i < 1000; i++)
        nvtxRangePop();
    take(2);
    if (gpucap_tag)
        MUST(0, gpucap_tag("still"));
    take(3);
    if (gpucap_tag)
        MUST(0, gpucap_tag(NULL));
    /* A handle of none, and more registered strings than there is room for. */
    event.message.registered = (nvtxStringHandle_t)name;
    nvtxRangePushEx(&event);
    take(4);
    for (int i = 0; i < 1024; i++)
        last = nvtxDomainRegisterStringA(NULL, "range 1");
    event.message.registered = last;
    nvtxRangePushEx(&event);
    take(5);
    MUST(1, !nvtxDomainRegisterStringA(NULL, "range 1"));
}

int main(int argc, char **argv)
{
    static const struct prog_scenario all[] = {{"ranges", ranges}, {"domains", domains}, {"many", many}};

    return prog_main(argc, argv, all, sizeof(all) / sizeof(*all));
}
