/* owner_maps: see owner_maps.h. */
#include "interpose/see/owner_maps.h"

#include <stdlib.h>

#include "interpose/base/files.h"
#include "interpose/base/pages.h"

#define MAPS_MAX  16384               /* executable mappings; more are not seen */
#define TEXT_MAX  (UINT32_C(8) << 20) /* bytes of /proc/self/maps */
#define PATHS_MAX (UINT32_C(4) << 20) /* bytes of all paths */

static struct owner_map *maps;        /* the last read; MAPS_MAX, as the next */
static struct owner_map *spare;       /* the one before, and room for the next */
static size_t map_count, spare_count; /* the spare ones are those of the read before */
static char *text;                    /* TEXT_MAX */
static char *paths;                   /* PATHS_MAX: names one after the other, each with its zero */
static size_t path_bytes;

static bool have_memory(void)
{
    maps = maps ? maps : pages_map_sparse(MAPS_MAX * sizeof(*maps));
    spare = spare ? spare : pages_map_sparse(MAPS_MAX * sizeof(*spare));
    text = text ? text : pages_map_sparse(TEXT_MAX);
    paths = paths ? paths : pages_map_sparse(PATHS_MAX);
    return maps && spare && text && paths;
}

/* Returns the one copy of a path, or NULL if there is no room. */
static const char *keep_path(const char *path)
{
    const size_t bytes = strlen(path) + 1;

    for (size_t at = 0; at < path_bytes; at += strlen(paths + at) + 1) {
        if (!strcmp(paths + at, path))
            return paths + at;
    }
    if (path_bytes + bytes > PATHS_MAX)
        return NULL;
    memcpy(paths + path_bytes, path, bytes);
    path_bytes += bytes;
    return paths + path_bytes - bytes;
}

/* Parses "START-END PERMISSIONS OFFSET DEVICE INODE PATH". Returns true for code from a file. */
static bool parse_line(char *line, struct owner_map *map)
{
    char *at;

    map->start = strtoull(line, &at, 16);
    if (*at++ != '-')
        return false;
    map->end = strtoull(at, &at, 16);
    if (at[0] != ' ' || at[1] != 'r' || at[3] != 'x')
        return false;
    map->offset = strtoull(at + 5, &at, 16);
    char *path = strchr(at, '/');
    map->path = path ? keep_path(path) : NULL;
    return map->path != NULL;
}

void owner_maps_read(void)
{
    const ssize_t length = have_memory() ? files_read("/proc/self/maps", text, TEXT_MAX - 1) : -ENOMEM;
    size_t count = 0;

    if (length < 0)
        return;
    text[length] = '\0';
    for (char *line = text, *next; *line && count < MAPS_MAX; line = next) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        if (parse_line(line, &spare[count]))
            count++;
    }
    struct owner_map *read_now = spare;
    spare = maps;
    maps = read_now;
    spare_count = map_count;
    map_count = count;
}

/* Compares an address with a mapping: 0 if it lies in it. */
static int place_in(const void *address, const void *map)
{
    const struct owner_map *in = map;
    const uint64_t at = *(const uint64_t *)address;

    return at < in->start ? -1 : at >= in->end;
}

static const struct owner_map *find(const struct owner_map *list, size_t count, uint64_t address)
{
    return count ? bsearch(&address, list, count, sizeof(*list), place_in) : NULL;
}

const struct owner_map *owner_maps_find(uint64_t address)
{
    return find(maps, map_count, address);
}

bool owner_maps_changed(uint64_t address)
{
    const struct owner_map *now = find(maps, map_count, address);
    const struct owner_map *before = find(spare, spare_count, address);

    return (now ? now->path : NULL) != (before ? before->path : NULL);
}

const struct owner_map *owner_maps_all(size_t *count)
{
    *count = map_count;
    return maps;
}

/* ---- calls ---- */

/* Copies memory of this process. Returns false if it cannot be read. */
static bool peek(uint64_t address, void *out, size_t bytes)
{
    const int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    const ssize_t got = pread(fd, out, bytes, (off_t)address);
    close(fd);
    return got == (ssize_t)bytes;
}

#if defined(__x86_64__)

static int32_t read32(const unsigned char *at)
{
    int32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

/* Follows a jump through the procedure linkage table: [endbr64] [bnd] jmp *slot(%rip). */
static uint64_t through_table(uint64_t target)
{
    static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    unsigned char code[16];
    uint64_t slot, to;
    size_t at = 0;

    if (!peek(target, code, sizeof(code)))
        return target;
    if (!memcmp(code, endbr64, sizeof(endbr64)))
        at = sizeof(endbr64);
    if (code[at] == 0xf2)
        at++;
    if (code[at] != 0xff || code[at + 1] != 0x25)
        return target;
    slot = target + at + 6 + (uint64_t)(int64_t)read32(code + at + 2);
    return peek(slot, &to, sizeof(to)) ? to : target;
}

enum owner_call owner_maps_call_before(uint64_t address, uint64_t *target)
{
    unsigned char code[8]; /* the bytes before the address; its end is the instruction's */

    if (address < sizeof(code) || !peek(address - sizeof(code), code, sizeof(code)))
        return OWNER_NO_CALL;
    if (code[3] == 0xe8) { /* call rel32 */
        *target = through_table(address + (uint64_t)(int64_t)read32(code + 4));
        return OWNER_CALL_DIRECT;
    }
    if (code[2] == 0xff && code[3] == 0x15) /* call *slot(%rip) */
        return peek(address + (uint64_t)(int64_t)read32(code + 4), target, sizeof(*target))
                   ? OWNER_CALL_DIRECT
                   : OWNER_NO_CALL;
    /* call *REGISTER, call *D8(REGISTER), call *D32(REGISTER), and those with an index */
    if ((code[6] == 0xff && (code[7] & 0x38) == 0x10 && ((code[7] & 0xc0) == 0xc0 || code[7] < 0x40)) ||
        (code[5] == 0xff && ((code[6] & 0xf8) == 0x50 || code[6] == 0x14)) ||
        (code[4] == 0xff && (code[5] & 0xf8) == 0x50) || (code[2] == 0xff && (code[3] & 0xf8) == 0x90) ||
        (code[1] == 0xff && code[2] == 0x94))
        return OWNER_CALL_POINTER;
    return OWNER_NO_CALL;
}

#elif defined(__aarch64__)

/* Follows a jump through the procedure linkage table: [bti] adrp x16; ldr x17, [x16, #n]; ... br x17. */
static uint64_t through_table(uint64_t target)
{
    uint32_t code[3];
    uint64_t to;

    if (!peek(target, code, sizeof(code)))
        return target;
    const uint32_t *at = code[0] == 0xd503245f ? code + 1 : code;
    const uint64_t place = target + (uint64_t)((const char *)at - (const char *)code);
    if ((at[0] & 0x9f00001f) != 0x90000010 || (at[1] & 0xffc003ff) != 0xf9400211)
        return target;
    int64_t page = (int64_t)(((at[0] >> 5 & 0x7ffff) << 2) | (at[0] >> 29 & 3));
    page = (page ^ 0x100000) - 0x100000;
    const uint64_t slot =
        (place & ~UINT64_C(0xfff)) + (uint64_t)page * 4096 + (uint64_t)(at[1] >> 10 & 0xfff) * 8;
    return peek(slot, &to, sizeof(to)) ? to : target;
}

enum owner_call owner_maps_call_before(uint64_t address, uint64_t *target)
{
    uint32_t code;

    if (address % 4 || address < 4 || !peek(address - 4, &code, sizeof(code)))
        return OWNER_NO_CALL;
    if ((code & 0xfc000000) == 0x94000000) { /* bl */
        int64_t words = code & 0x3ffffff;

        words = (words ^ 0x2000000) - 0x2000000;
        *target = through_table(address - 4 + (uint64_t)words * 4);
        return OWNER_CALL_DIRECT;
    }
    if ((code & 0xfffffc1f) == 0xd63f0000 || (code & 0xfeffe800) == 0xd63f0800) /* blr, blraa and the like */
        return OWNER_CALL_POINTER;
    return OWNER_NO_CALL;
}

#else
#error "gpucap knows x86_64 and aarch64"
#endif

void owner_maps_after_fork(void)
{
    map_count = spare_count = path_bytes = 0; /* another thread may have been reading */
}
