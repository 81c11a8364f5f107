/* elfsym: see elfsym.h. Not instrumented by sanitizers: it runs before they are ready. */
#include "elfsym.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EARLY __attribute__((no_sanitize("address", "thread", "undefined")))

#define VERSYM_HIDDEN 0x8000 /* not the default version of its name */

struct tables {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint16_t *versions;
};

EARLY static bool same(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

EARLY static bool file_name_begins(const char *path, const char *prefix)
{
    const char *name = path;

    for (const char *p = path; *p; p++) {
        if (*p == '/')
            name = p + 1;
    }
    while (*prefix && *name == *prefix)
        name++, prefix++;
    return !*prefix;
}

/* glibc has relocated most of these already; a few architectures leave offsets. */
EARLY static const void *relocated(const struct link_map *map, ElfW(Addr) value)
{
    return (const void *)(value < map->l_addr ? map->l_addr + value : value);
}

EARLY static bool read_tables(const struct link_map *map, struct tables *t)
{
    *t = (struct tables){.base = map->l_addr};
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
        switch (d->d_tag) {
        case DT_SYMTAB:
            t->symbols = relocated(map, d->d_un.d_ptr);
            break;
        case DT_STRTAB:
            t->strings = relocated(map, d->d_un.d_ptr);
            break;
        case DT_GNU_HASH:
            t->gnu_hash = relocated(map, d->d_un.d_ptr);
            break;
        case DT_VERSYM:
            t->versions = relocated(map, d->d_un.d_ptr);
            break;
        default:
            break;
        }
    }
    return t->symbols && t->strings && t->gnu_hash;
}

EARLY static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;

    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

EARLY static void *find_in(const struct tables *t, const char *name)
{
    const uint32_t buckets = t->gnu_hash[0], first = t->gnu_hash[1], bloom = t->gnu_hash[2];
    const uint32_t *bucket = t->gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    const uint32_t hash = gnu_hash(name);
    void *found = NULL;

    if (buckets == 0)
        return NULL;
    for (uint32_t i = bucket[hash % buckets]; i >= first && i != 0; i++) {
        const ElfW(Sym) *symbol = &t->symbols[i];
        uint32_t link = chain[i - first];

        if ((link | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            same(t->strings + symbol->st_name, name)) {
            found = (void *)(t->base + symbol->st_value);
            if (!t->versions || !(t->versions[i] & VERSYM_HIDDEN))
                return found;
        }
        if (link & 1)
            break;
    }
    return found;
}

EARLY void *elfsym_find(const char *library, const char *symbol)
{
    for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
        struct tables t;
        void *found;

        if (map->l_name && file_name_begins(map->l_name, library) && read_tables(map, &t) &&
            (found = find_in(&t, symbol)))
            return found;
    }
    return NULL;
}
