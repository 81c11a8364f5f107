/* elfsym: see elfsym.h. Runs before sanitizers are ready, so it is not instrumented by them. */
#include "interpose/driver/elfsym.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

EARLY ElfW(Addr) elfsym_value(const ElfW(Dyn) * dynamic, ElfW(Sxword) tag)
{
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == tag)
            return d->d_un.d_ptr;
    }
    return 0;
}

EARLY const void *elfsym_table(ElfW(Addr) base, const ElfW(Dyn) * dynamic, ElfW(Sxword) tag)
{
    const ElfW(Addr) value = elfsym_value(dynamic, tag);

    return (const void *)(value && value < base ? base + value : value);
}

const ElfW(Dyn) * elfsym_dynamic(const struct dl_phdr_info *object)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    }
    return NULL;
}

EARLY static bool read_tables(ElfW(Addr) base, const ElfW(Dyn) * dynamic, struct tables *t)
{
    *t = (struct tables){.base = base,
                         .symbols = elfsym_table(base, dynamic, DT_SYMTAB),
                         .strings = elfsym_table(base, dynamic, DT_STRTAB),
                         .gnu_hash = elfsym_table(base, dynamic, DT_GNU_HASH),
                         .versions = elfsym_table(base, dynamic, DT_VERSYM)};
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

        if (map->l_name && file_name_begins(map->l_name, library) &&
            read_tables(map->l_addr, map->l_ld, &t) && (found = find_in(&t, symbol)))
            return found;
    }
    return NULL;
}

/* One look-up of elfsym_after. */
struct walk {
    const void *start, *skip;
    const char *symbol;
    bool started, skipped; /* these two objects have been visited */
    struct elfsym_next next;
};

bool elfsym_holds(const struct dl_phdr_info *object, const void *pointer)
{
    const uintptr_t address = (uintptr_t)pointer;

    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

        if (segment->p_type == PT_LOAD && address - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            return true;
    }
    return false;
}

void *elfsym_defined_in(const struct dl_phdr_info *object, const char *symbol)
{
    struct tables t;

    return read_tables(object->dlpi_addr, elfsym_dynamic(object), &t) ? find_in(&t, symbol) : NULL;
}

struct question {
    const char *library, *symbol;
};

/* Visits one object. Returns nonzero, which ends the walk, if it defines the symbol. */
static int visit_defines(struct dl_phdr_info *object, size_t size, void *argument)
{
    const struct question *q = argument;

    (void)size;
    return object->dlpi_name && file_name_begins(object->dlpi_name, q->library) &&
           elfsym_defined_in(object, q->symbol) != NULL;
}

bool elfsym_defines(const char *library, const char *symbol)
{
    struct question q = {.library = library, .symbol = symbol};

    return dl_iterate_phdr(visit_defines, &q) != 0;
}

/* Visits one object in load order. Nonzero ends the walk. */
static int visit(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct walk *walk = argument;

    (void)size;
    if (elfsym_holds(object, walk->start)) {
        walk->started = true;
        walk->next.known = true;
        walk->next.start_is_later = walk->skipped;
    } else if (elfsym_holds(object, walk->skip)) {
        walk->skipped = true;
    } else if (walk->started && (walk->next.address = elfsym_defined_in(object, walk->symbol))) {
        walk->next.is_earlier = !walk->skipped;
        return 1;
    }
    return 0;
}

struct elfsym_next elfsym_after(const void *start, const void *skip, const char *symbol)
{
    struct walk walk = {.start = start, .skip = skip, .symbol = symbol};

    dl_iterate_phdr(visit, &walk);
    return walk.next;
}
