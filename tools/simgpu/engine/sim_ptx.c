/* sim_ptx: reads names and sizes from PTX text. See sim_ptx.h. */
#include "tools/simgpu/engine/sim_ptx.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMETER_BYTES (1u << 16)
#define MAX_LOCAL_BYTES     (512u << 10) /* per thread, on every GPU */

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%';
}

/* Skips blanks and comments. */
static const char *skip(const char *p)
{
    for (;;) {
        p += strspn(p, " \t\r\n");
        if (p[0] == '/' && p[1] == '/') {
            p += strcspn(p, "\n");
        } else if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");

            p = end ? end + 2 : p + strlen(p);
        } else {
            return p;
        }
    }
}

/* Returns the length of the word of name characters at p, or 0. */
static size_t word(const char *p)
{
    size_t length = 0;

    while (is_name(p[length]))
        length++;
    return length;
}

static bool equals(const char *p, size_t length, const char *text)
{
    return length == strlen(text) && strncmp(p, text, length) == 0;
}

bool sim_ptx_is_text(const char *image)
{
    image = skip(image);
    return equals(image, word(image), ".version");
}

static uint32_t type_size(const char *p, size_t length)
{
    static const struct {
        const char *name;
        uint32_t size;
    } types[] = {{".u8", 1},  {".s8", 1},  {".b8", 1},  {".u16", 2}, {".s16", 2},
                 {".b16", 2}, {".f16", 2}, {".u32", 4}, {".s32", 4}, {".b32", 4},
                 {".f32", 4}, {".u64", 8}, {".s64", 8}, {".b64", 8}, {".f64", 8}};
    size_t i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (equals(p, length, types[i].name))
            return types[i].size;
    return 0;
}

/* A declaration like ".align 8 .b8 name[16]": its name, element size, element count and alignment. */
struct declaration {
    char name[PTX_MAX_NAME];
    uint32_t element;
    uint64_t count;
    uint32_t alignment;
};

static bool read_count(const char **at, uint64_t *count)
{
    const char *p = skip(*at);
    char *end;

    *count = 1;
    if (*p != '[')
        return true;
    p = skip(p + 1);
    if (!isdigit((unsigned char)*p))
        return false;
    *count = strtoull(p, &end, 0);
    p = skip(end);
    if (*p != ']' || *count == 0 || *count > UINT32_MAX)
        return false;
    *at = p + 1;
    return true;
}

static bool read_declaration(const char **at, struct declaration *out)
{
    const char *p = skip(*at);
    size_t length;

    *out = (struct declaration){.alignment = 0};
    while ((length = word(p)) > 0 && *p == '.') {
        uint32_t size = type_size(p, length);

        if (size)
            out->element = size;
        if (equals(p, length, ".align")) {
            p = skip(p + length);
            length = word(p);
            if (!out->element) /* behind the type it is the alignment of a pointer's target */
                out->alignment = (uint32_t)strtoul(p, NULL, 10);
        }
        p = skip(p + length);
    }
    if (length == 0 || length >= PTX_MAX_NAME || out->element == 0)
        return false;
    memcpy(out->name, p, length);
    out->name[length] = '\0';
    *at = p + length;
    if (out->alignment < out->element)
        out->alignment = out->element;
    if (out->alignment > 256 || (out->alignment & (out->alignment - 1)))
        return false;
    return read_count(at, &out->count);
}

static bool add_parameter(struct sim_ptx_entry *entry, const struct declaration *declaration)
{
    uint64_t bytes = declaration->element * declaration->count;
    uint32_t offset = (entry->bytes + declaration->alignment - 1) & ~(declaration->alignment - 1);

    if (entry->count == PTX_MAX_PARAMS || bytes > MAX_PARAMETER_BYTES || offset + bytes > MAX_PARAMETER_BYTES)
        return false;
    entry->size[entry->count] = (uint32_t)bytes;
    entry->offset[entry->count] = offset;
    entry->bytes = offset + (uint32_t)bytes;
    entry->count++;
    return true;
}

/* Reads what follows ".entry": NAME ( .param ..., .param ... ) */
static bool read_entry(const char **at, struct sim_ptx_entry *out)
{
    const char *p = skip(*at);
    size_t length = word(p);
    struct declaration declaration;

    *out = (struct sim_ptx_entry){.count = 0};
    if (length == 0 || length >= PTX_MAX_NAME)
        return false;
    memcpy(out->name, p, length);
    p = skip(p + length);
    if (*p == '(') {
        p = skip(p + 1);
        while (*p != ')') {
            if (!read_declaration(&p, &declaration) || !add_parameter(out, &declaration))
                return false;
            p = skip(p);
            if (*p == ',')
                p = skip(p + 1);
            else if (*p != ')')
                return false;
        }
        p++;
    }
    *at = p;
    return true;
}

/* Skips a body { ... } */
static const char *skip_body(const char *p)
{
    unsigned int depth = 0;

    while (*(p = skip(p))) {
        if (*p == '{')
            depth++;
        else if (*p == '}' && --depth == 0)
            return p + 1;
        p++;
    }
    return p;
}

/* Returns the bytes of the .local variables in the body of an entry; p is behind its parameters. */
static uint32_t local_bytes(const char *p)
{
    const char *start = p + strcspn(p, "{;"), *end;
    struct declaration declaration;
    uint64_t sum = 0;

    if (*start != '{')
        return 0;
    end = skip_body(start);
    for (p = skip(start); p < end; p = skip(p)) {
        const size_t length = word(p);

        if (!equals(p, length, ".local")) {
            p += length ? length : 1;
            continue;
        }
        p += length;
        if (read_declaration(&p, &declaration))
            sum += declaration.element * declaration.count;
    }
    return sum < MAX_LOCAL_BYTES ? (uint32_t)sum : MAX_LOCAL_BYTES;
}

/* Returns the next word outside of bodies, or NULL at the end, and moves *at behind it. */
static const char *next_word(const char **at, size_t *length)
{
    const char *p = *at;

    while (*(p = skip(p))) {
        *length = word(p);
        if (*length > 0) {
            *at = p + *length;
            return p;
        }
        p = *p == '{' ? skip_body(p) : p + 1;
    }
    *at = p;
    return NULL;
}

bool sim_ptx_next_entry(const char **at, struct sim_ptx_entry *out)
{
    const char *p;
    size_t length;

    while ((p = next_word(at, &length)))
        if (equals(p, length, ".entry")) {
            if (!read_entry(at, out))
                return false;
            out->local = local_bytes(*at);
            return true;
        }
    return false;
}

bool sim_ptx_next_variable(const char **at, struct sim_ptx_variable *out)
{
    struct declaration declaration;
    const char *p;
    size_t length;

    while ((p = next_word(at, &length)))
        if (equals(p, length, ".global") || equals(p, length, ".const")) {
            if (!read_declaration(at, &declaration))
                return false;
            memcpy(out->name, declaration.name, sizeof(out->name));
            out->size = declaration.element * declaration.count;
            return true;
        }
    return false;
}
