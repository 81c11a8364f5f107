/* hook_nvtx: with nvtx=on, NVTX ranges become tags. A program's NVTX (version 3 is a header, and each library
 * has its own) loads the library that NVTX_INJECTION64_PATH names, calls InitializeInjectionNvtx2, and from
 * then on the functions that we put into its tables. `gpucap run` sets that variable; the library never does.
 * NVTX's own types are declared in nvtx_abi.h, so that the build needs no header of NVTX's;
 * tests/integration/prog_nvtx.c compares them with the header. Owns no lock.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "interpose/hook/hooks.h"
#include "interpose/hook/nvtx_abi.h"
#include "interpose/library.h"
#include "interpose/see/nvtx.h"
#include "interpose/see/tags.h"
#include "interpose/settings/log.h"

#define REGISTERED 1024 /* strings; later ones have no name */

/* ---- names ---- */

/* Strings that the program has registered. A handle is the address of one. */
static struct registered {
    uint16_t tag;
} registered[REGISTERED];
static atomic_uint registered_count;

static uint16_t tag_of(const char *text)
{
    const uint16_t tag = text ? tags_of_range(text) : 0;

    if (!tag && text && *text)
        LOG_ERROR_ONCE("there are more than %d names of NVTX ranges: the range \"%.31s\" and later ones do "
                       "not become tags",
                       TAGS_RANGES, text);
    return tag;
}

/* Writes as much of a wide text as fits, in UTF-8. */
static void narrow(const wchar_t *wide, char text[TAGS_NAME])
{
    size_t used = 0;

    for (; wide && *wide; wide++) {
        const uint32_t c = (uint32_t)*wide;
        const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};

        if (c > 0x10ffff || used + (size_t)more + 1 >= TAGS_NAME)
            break;
        text[used++] = (char)(first[more] | c >> (6 * more));
        for (int i = more; i-- > 0;)
            text[used++] = (char)(0x80 | (c >> (6 * i) & 0x3f));
    }
    text[used] = '\0';
}

static uint16_t tag_of_wide(const wchar_t *wide)
{
    char text[TAGS_NAME];

    narrow(wide, text);
    return tag_of(text);
}

static uint16_t tag_of_event(const struct nvtx_event *event)
{
    if (!event || event->size < sizeof(*event))
        return 0;
    switch (event->message_type) {
    case NVTX_ASCII:
        return tag_of(event->message.ascii);
    case NVTX_UNICODE:
        return tag_of_wide(event->message.unicode);
    case NVTX_REGISTERED: {
        const struct registered *string = event->message.registered;
        const uintptr_t at = (uintptr_t)string - (uintptr_t)registered;

        return at < sizeof(registered) && at % sizeof(*string) == 0 ? string->tag : 0;
    }
    default:
        return 0;
    }
}

/* ---- what NVTX calls ---- */

static int push_event(const struct nvtx_event *event)
{
    return nvtx_push(NULL, tag_of_event(event));
}

static int push_ascii(const char *message)
{
    return nvtx_push(NULL, tag_of(message));
}

static int push_unicode(const wchar_t *message)
{
    return nvtx_push(NULL, tag_of_wide(message));
}

static int pop(void)
{
    return nvtx_pop(NULL);
}

static int domain_push(const void *domain, const struct nvtx_event *event)
{
    return nvtx_push(domain, tag_of_event(event));
}

static int domain_pop(const void *domain)
{
    return nvtx_pop(domain);
}

static const void *register_tag(uint16_t tag)
{
    const unsigned at = atomic_fetch_add(&registered_count, 1);

    if (at >= REGISTERED) {
        atomic_store(&registered_count, REGISTERED);
        return NULL;
    }
    registered[at].tag = tag;
    return &registered[at];
}

static const void *register_ascii(const void *domain, const char *text)
{
    (void)domain;
    return register_tag(tag_of(text));
}

static const void *register_unicode(const void *domain, const wchar_t *text)
{
    (void)domain;
    return register_tag(tag_of_wide(text));
}

/* A domain's handle is a number; it only has to be unique. */
static const void *create_domain(const void *name)
{
    static atomic_uintptr_t last;

    (void)name;
    return (const void *)(atomic_fetch_add(&last, 1) + 1); // NOLINT(performance-no-int-to-ptr)
}

/* ---- start ---- */

struct entry {
    unsigned id;
    nvtx_function function;
};

static bool attach(const struct nvtx_callbacks *callbacks, int module, const struct entry *entries,
                   size_t count)
{
    nvtx_function **table = NULL;
    unsigned size = 0;

    if (!callbacks->get_module_function_table(module, &table, &size) || !table)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (entries[i].id < size && table[entries[i].id])
            *table[entries[i].id] = entries[i].function;
    }
    return true;
}

/* Called by each copy of NVTX in the process. Returns 1 if ranges are to be tags; 0: NVTX does nothing. */
EXPORT int InitializeInjectionNvtx2(nvtx_get_export_table get_table); /* NVTX knows this name */
EXPORT int InitializeInjectionNvtx2(nvtx_get_export_table get_table)
{
    static const struct entry core[] = {{NVTX_RANGE_PUSH_EX, (nvtx_function)push_event},
                                        {NVTX_RANGE_PUSH_A, (nvtx_function)push_ascii},
                                        {NVTX_RANGE_PUSH_W, (nvtx_function)push_unicode},
                                        {NVTX_RANGE_POP, (nvtx_function)pop}};
    static const struct entry core2[] = {{NVTX_DOMAIN_RANGE_PUSH_EX, (nvtx_function)domain_push},
                                         {NVTX_DOMAIN_RANGE_POP, (nvtx_function)domain_pop},
                                         {NVTX_DOMAIN_REGISTER_STRING_A, (nvtx_function)register_ascii},
                                         {NVTX_DOMAIN_REGISTER_STRING_W, (nvtx_function)register_unicode},
                                         {NVTX_DOMAIN_CREATE_A, (nvtx_function)create_domain},
                                         {NVTX_DOMAIN_CREATE_W, (nvtx_function)create_domain}};
    const struct nvtx_callbacks *callbacks =
        get_table && library_options()->nvtx ? get_table(NVTX_CALLBACKS) : NULL;

    if (!callbacks || callbacks->struct_size < sizeof(*callbacks))
        return 0;
    const bool first = attach(callbacks, NVTX_CORE, core, sizeof(core) / sizeof(*core));
    return attach(callbacks, NVTX_CORE2, core2, sizeof(core2) / sizeof(*core2)) || first;
}
