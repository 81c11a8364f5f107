/* hook_nvtx: what we put into NVTX's tables, and which tags and domains its calls become. NVTX, tags and
 * ranges are the test's own. */
#include "interpose/hook/nvtx_abi.h"

#include <string.h>
#include <unity.h>

#include "interpose/library.h"
#include "interpose/see/nvtx.h"
#include "interpose/see/tags.h"
#include "interpose/settings/log.h"

#define TABLE 16

int InitializeInjectionNvtx2(nvtx_get_export_table get_table);

static struct options options = {.nvtx = true};
static nvtx_function core[TABLE], core2[TABLE];
static nvtx_function *core_places[TABLE], *core2_places[TABLE];
static struct nvtx_callbacks callbacks;
static struct fake {
    bool no_core, no_core2, full;
    unsigned core_size;
    char text[64]; /* of the last tag */
    const void *domain;
    uint16_t tag;
    int pops, said;
} fake;

/* ---- the test's own library and NVTX ---- */

const struct options *library_options(void)
{
    return &options;
}

uint16_t tags_of_range(const char *name)
{
    strncpy(fake.text, name, sizeof(fake.text) - 1);
    return fake.full ? 0 : (uint16_t)(strlen(name) + 100);
}

int nvtx_push(const void *domain, uint16_t tag)
{
    fake.domain = domain;
    fake.tag = tag;
    return 3;
}

int nvtx_pop(const void *domain)
{
    fake.domain = domain;
    fake.pops++;
    return 2;
}

void log_error(const char *format, ...)
{
    (void)format;
    fake.said++;
}

static int get_module_table(int module, nvtx_function ***table, unsigned *size)
{
    *table = module == NVTX_CORE ? core_places : core2_places;
    *size = module == NVTX_CORE ? fake.core_size : TABLE;
    return module == NVTX_CORE ? !fake.no_core : !fake.no_core2;
}

static const void *get_export_table(uint32_t id)
{
    TEST_ASSERT_EQUAL_UINT32(NVTX_CALLBACKS, id);
    return &callbacks;
}

void setUp(void)
{
    fake = (struct fake){.core_size = TABLE};
    callbacks = (struct nvtx_callbacks){sizeof(callbacks), get_module_table};
    options.nvtx = true;
    for (int i = 0; i < TABLE; i++) {
        core[i] = core2[i] = NULL;
        core_places[i] = &core[i];
        core2_places[i] = &core2[i];
    }
}

void tearDown(void) {}

static int push(const struct nvtx_event *event)
{
    return ((int (*)(const struct nvtx_event *))core[NVTX_RANGE_PUSH_EX])(event);
}

static void test_ranges_become_tags_only_if_asked_for(void)
{
    options.nvtx = false;
    TEST_ASSERT_EQUAL_INT(0, InitializeInjectionNvtx2(get_export_table));
    TEST_ASSERT_NULL(core[NVTX_RANGE_POP]);
    options.nvtx = true;
    TEST_ASSERT_EQUAL_INT(0, InitializeInjectionNvtx2(NULL));
    callbacks.struct_size--; /* an older NVTX, without this function */
    TEST_ASSERT_EQUAL_INT(0, InitializeInjectionNvtx2(get_export_table));
    TEST_ASSERT_NULL(core[NVTX_RANGE_POP]);
}

static void test_only_what_a_table_has_is_replaced(void)
{
    fake.core_size = NVTX_RANGE_POP; /* ends before it */
    core_places[NVTX_RANGE_PUSH_W] = NULL;
    TEST_ASSERT_EQUAL_INT(1, InitializeInjectionNvtx2(get_export_table));
    TEST_ASSERT_NOT_NULL(core[NVTX_RANGE_PUSH_EX]);
    TEST_ASSERT_NOT_NULL(core2[NVTX_DOMAIN_CREATE_W]);
    TEST_ASSERT_NULL(core[NVTX_RANGE_PUSH_W]);
    TEST_ASSERT_NULL_MESSAGE(core[NVTX_RANGE_POP], "outside of the table");
    fake.no_core = true;
    TEST_ASSERT_EQUAL_INT_MESSAGE(1, InitializeInjectionNvtx2(get_export_table), "one of the two is enough");
    fake.no_core2 = true;
    TEST_ASSERT_EQUAL_INT(0, InitializeInjectionNvtx2(get_export_table));
    fake.no_core = false;
    TEST_ASSERT_EQUAL_INT(1, InitializeInjectionNvtx2(get_export_table));
}

static void test_a_range_has_the_name_of_its_message(void)
{
    struct nvtx_event event = {.size = sizeof(event), .message_type = NVTX_ASCII, .message.ascii = "forward"};

    TEST_ASSERT_EQUAL_INT(1, InitializeInjectionNvtx2(get_export_table));
    TEST_ASSERT_EQUAL_INT(3, push(&event));
    TEST_ASSERT_EQUAL_STRING("forward", fake.text);
    TEST_ASSERT_EQUAL_INT(107, fake.tag);
    TEST_ASSERT_NULL(fake.domain);
    event.size--; /* without all its fields */
    push(&event);
    TEST_ASSERT_EQUAL_INT(0, fake.tag);
    push(NULL);
    TEST_ASSERT_EQUAL_INT(0, fake.tag);
    event = (struct nvtx_event){.size = sizeof(event), .message_type = 9, .message.ascii = "x"};
    push(&event);
    TEST_ASSERT_EQUAL_INT(0, fake.tag);
    ((int (*)(const char *))core[NVTX_RANGE_PUSH_A])("back");
    TEST_ASSERT_EQUAL_STRING("back", fake.text);
    TEST_ASSERT_EQUAL_INT(2, ((int (*)(void))core[NVTX_RANGE_POP])());
    TEST_ASSERT_EQUAL_INT(1, fake.pops);
}

static void push_wide(const wchar_t *text)
{
    ((int (*)(const wchar_t *))core[NVTX_RANGE_PUSH_W])(text);
}

static void test_wide_names_are_utf8_and_cut_between_characters(void)
{
    wchar_t text[64];

    TEST_ASSERT_EQUAL_INT(1, InitializeInjectionNvtx2(get_export_table));
    push_wide(L"a\x7f\x80\x7ff\x800\xffff\x10000\x10ffff");
    TEST_ASSERT_EQUAL_STRING("a\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
                             fake.text);
    for (int i = 0; i < 63; i++)
        text[i] = i % 2 ? 0x20ac : L'x'; /* four bytes for two */
    text[63] = 0;
    push_wide(text);
    TEST_ASSERT_EQUAL_size_t_MESSAGE(TAGS_NAME - 3, strlen(fake.text), "7 pairs and one more letter");
    TEST_ASSERT_EQUAL_CHAR('x', fake.text[strlen(fake.text) - 1]);
    text[0] = (wchar_t)0x110000; /* no character */
    memset(fake.text, 0, sizeof(fake.text));
    push_wide(text);
    TEST_ASSERT_EQUAL_STRING("", fake.text);
}

static void test_a_domain_has_its_own_ranges_and_strings(void)
{
    const void *(*create)(const void *) = NULL, *(*register_text)(const void *, const char *) = NULL;
    int (*domain_push)(const void *, const struct nvtx_event *) = NULL;
    struct nvtx_event event = {.size = sizeof(event), .message_type = NVTX_REGISTERED};

    TEST_ASSERT_EQUAL_INT(1, InitializeInjectionNvtx2(get_export_table));
    memcpy(&create, &core2[NVTX_DOMAIN_CREATE_A], sizeof(create));
    memcpy(&register_text, &core2[NVTX_DOMAIN_REGISTER_STRING_A], sizeof(register_text));
    memcpy(&domain_push, &core2[NVTX_DOMAIN_RANGE_PUSH_EX], sizeof(domain_push));
    const void *one = create("one"), *two = create("two");
    TEST_ASSERT_TRUE(one && two && one != two);
    const void *text = register_text(one, "loss"), *other = register_text(one, "gradient");
    TEST_ASSERT_TRUE(text && other && text != other);
    event.message.registered = text;
    domain_push(two, &event);
    TEST_ASSERT_EQUAL_PTR(two, fake.domain);
    TEST_ASSERT_EQUAL_INT(104, fake.tag);
    event.message.registered = other;
    domain_push(one, &event);
    TEST_ASSERT_EQUAL_INT(108, fake.tag);
    ((int (*)(const void *))core2[NVTX_DOMAIN_RANGE_POP])(two);
    TEST_ASSERT_EQUAL_PTR(two, fake.domain);
    event.message.registered = &event; /* of another library, which NVTX has told first */
    domain_push(one, &event);
    TEST_ASSERT_EQUAL_INT(0, fake.tag);
    event.message.registered = (const char *)text + 1;
    domain_push(one, &event);
    TEST_ASSERT_EQUAL_INT(0, fake.tag);
    int more = 0;
    while (register_text(one, "again"))
        more++;
    TEST_ASSERT_EQUAL_INT_MESSAGE(1022, more, "two were there");
    TEST_ASSERT_NULL(register_text(one, "again"));
}

static void test_too_many_names_are_said_once(void)
{
    TEST_ASSERT_EQUAL_INT(1, InitializeInjectionNvtx2(get_export_table));
    fake.full = true;
    ((int (*)(const char *))core[NVTX_RANGE_PUSH_A])("");
    ((int (*)(const char *))core[NVTX_RANGE_PUSH_A])(NULL);
    TEST_ASSERT_EQUAL_INT(0, fake.said);
    ((int (*)(const char *))core[NVTX_RANGE_PUSH_A])("one more");
    ((int (*)(const char *))core[NVTX_RANGE_PUSH_A])("and another");
    TEST_ASSERT_EQUAL_INT(1, fake.said);
    TEST_ASSERT_EQUAL_INT(0, fake.tag);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_ranges_become_tags_only_if_asked_for);
    RUN_TEST(test_only_what_a_table_has_is_replaced);
    RUN_TEST(test_a_range_has_the_name_of_its_message);
    RUN_TEST(test_wide_names_are_utf8_and_cut_between_characters);
    RUN_TEST(test_a_domain_has_its_own_ranges_and_strings);
    RUN_TEST(test_too_many_names_are_said_once);
    return UNITY_END();
}
