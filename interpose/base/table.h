/* table: a hash table of structures, with linear probing and backward-shift deletion: without tombstones it
 * does not degrade in a long-lived program. It is at most half full. Memory comes from pages.h.
 *
 * An entry begins with its key: a uint64_t, and where numbers of several name spaces meet, a uint32_t that
 * names the space. The functions are inline: each use is compiled for its own kind of entry.
 * Pointers to entries are valid until the next put or erase. Owns no lock: the user of a table has one.
 */
#ifndef GPUCAP_TABLE_H
#define GPUCAP_TABLE_H

#include <errno.h>
#include <stdbool.h>

#include "interpose/base/pages.h"

#define TABLE_FIRST  4096 /* places; a power of two */
#define TABLE_INLINE static inline __attribute__((always_inline))

struct table_of {
    uint64_t size; /* of an entry; one of zeros is an empty place */
    bool spaces;   /* the key has a space, which is not 0; else its number is not 0 */
};

struct table {
    char *places;
    uint64_t capacity, count;
};

/* Blocks of one size lie at equal distances. A single multiplication keeps these, and a few thousand blocks
 * of an unlucky size would form one run in the table. With a shift between two multiplications an entry is on
 * average less than one step from its home, for every size up to 4 MiB (measured). */
TABLE_INLINE uint64_t table_hash(uint64_t key)
{
    uint64_t h = key * UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h >> 32;
}

struct table_key {
    uint64_t number;
    uint32_t space;
};

TABLE_INLINE struct table_key table_key(const struct table_of *of, const void *entry)
{
    struct table_key key = {0};

    memcpy(&key, entry, sizeof(key.number) + (of->spaces ? sizeof(key.space) : 0));
    return key;
}

TABLE_INLINE bool table_is_empty(const struct table_of *of, const void *entry)
{
    const struct table_key key = table_key(of, entry);

    return of->spaces ? !key.space : !key.number;
}

/* Returns the number of the place in which an entry is looked for first. */
TABLE_INLINE uint64_t table_home(const struct table_of *of, const void *entry)
{
    const struct table_key key = table_key(of, entry);

    return table_hash(key.number ^ (uint64_t)key.space << 56);
}

/* Returns the place with this number, modulo the capacity, which is not 0. */
TABLE_INLINE void *table_at(const struct table *table, const struct table_of *of, uint64_t number)
{
    return table->places + (number & (table->capacity - 1)) * of->size;
}

/* Returns the first entry at or behind place number *at, and moves *at behind it; NULL: there is none. */
TABLE_INLINE void *table_next(const struct table *table, const struct table_of *of, uint64_t *at)
{
    while (*at < table->capacity) {
        void *place = table_at(table, of, (*at)++);

        if (!table_is_empty(of, place))
            return place;
    }
    return NULL;
}

/* Returns the entry with the key of `wanted`, or NULL. */
TABLE_INLINE void *table_find(const struct table *table, const struct table_of *of, const void *wanted)
{
    if (!table->places)
        return NULL;
    const struct table_key key = table_key(of, wanted);
    for (uint64_t i = table_home(of, wanted);; i++) {
        void *place = table_at(table, of, i);
        const struct table_key other = table_key(of, place);

        if (table_is_empty(of, place))
            return NULL;
        if (other.number == key.number && other.space == key.space)
            return place;
    }
}

/* Enters a copy of an entry whose key is not in the table and for which there is room. */
TABLE_INLINE void table_put(struct table *table, const struct table_of *of, const void *entry)
{
    uint64_t i = table_home(of, entry);

    while (!table_is_empty(of, table_at(table, of, i)))
        i++;
    memcpy(table_at(table, of, i), entry, of->size);
    table->count++;
}

/* Makes room for `more` entries. Returns 0, or -ENOMEM and leaves the table as it is. */
static inline int table_prepare(struct table *table, const struct table_of *of, uint64_t more)
{
    struct table bigger = {.capacity = table->capacity ? table->capacity : TABLE_FIRST};
    const void *entry;

    if (2 * (table->count + more) <= table->capacity)
        return 0;
    while (2 * (table->count + more) > bigger.capacity)
        bigger.capacity *= 2;
    bigger.places = pages_map(bigger.capacity * of->size);
    if (!bigger.places)
        return -ENOMEM;
    for (uint64_t at = 0; (entry = table_next(table, of, &at));)
        table_put(&bigger, of, entry);
    if (table->places)
        munmap(table->places, table->capacity * of->size);
    *table = bigger;
    return 0;
}

/* Takes an entry out, and moves later ones of its run back, so that each can be reached from its home. */
TABLE_INLINE void table_erase(struct table *table, const struct table_of *of, void *place)
{
    const uint64_t mask = table->capacity - 1;
    uint64_t hole = (uint64_t)((char *)place - table->places) / of->size;

    for (uint64_t i = hole + 1; !table_is_empty(of, table_at(table, of, i)); i++) {
        const uint64_t home = table_home(of, table_at(table, of, i));

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            memcpy(table_at(table, of, hole), table_at(table, of, i), of->size);
            hole = i;
        }
    }
    memset(table_at(table, of, hole), 0, of->size);
    table->count--;
}

/* Verifies a table. Returns NULL, or a message that says what is wrong. */
static inline const char *table_check(const struct table *table, const struct table_of *of)
{
    uint64_t entries = 0;
    const void *entry;

    for (uint64_t at = 0; (entry = table_next(table, of, &at)); entries++) {
        if (table_find(table, of, entry) != entry)
            return "an entry of a table is not found where it is";
    }
    return entries == table->count ? NULL : "a table counts its entries wrong";
}

/* Forgets all entries and gives the memory back. */
static inline void table_close(struct table *table, const struct table_of *of)
{
    if (table->places)
        munmap(table->places, table->capacity * of->size);
    *table = (struct table){0};
}

#endif
