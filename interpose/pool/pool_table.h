/* pool_table: the live blocks of a pool by address. A block that a thread's cache holds is in it too; the
 * word of its mark says so. All functions need the pool's lock. */
#ifndef GPUCAP_POOL_TABLE_H
#define GPUCAP_POOL_TABLE_H

#include "interpose/pool/pool_state.h"

/* Makes room for one more block, so that pool_table_put cannot fail. Returns 0 or -ENOMEM. */
int pool_table_prepare(struct pool *pool);
void pool_table_put(struct pool *pool, struct range *range);
/* Takes out a block that is in the table. */
void pool_table_erase(struct pool *pool, const struct range *range);

/* Returns the block of the program that begins at an address, or NULL; *word is its word. */
struct range *pool_table_live(const struct pool *pool, uint64_t address, uint64_t *word);
/* The same for the block that contains the address. */
struct range *pool_table_around(const struct pool *pool, uint64_t address, uint64_t *word);

/* Calls `visit` for each block of the program, with its address and mark. */
void pool_table_each(const struct pool *pool,
                     void (*visit)(uint64_t address, const struct mark *mark, void *argument),
                     void *argument);

/* Checks the table against the ranges. Returns NULL, or a message that says what is wrong. */
const char *pool_table_check(const struct pool *pool);

/* Frees the table's own memory. */
void pool_table_close(struct pool *pool);

#endif
