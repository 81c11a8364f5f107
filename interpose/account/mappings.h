/* mappings: where the program has mapped its own cuMemCreate memory. A handle may be released as soon as it
 * is mapped; its memory then lives, and stays in the account, until it is unmapped. Memory bound to sparse
 * arrays (cuMemMapArrayAsync) is not followed.
 *
 * Owns one lock, held only inside these functions. Its memory comes from mmap, not from the host program's
 * malloc.
 */
#ifndef GPUCAP_MAPPINGS_H
#define GPUCAP_MAPPINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "interpose/account/blocks.h"

/* Notes that a handle was mapped. Without memory for that it is not noted. */
void mappings_add(uint64_t address, uint64_t handle);

/* Call when the program has released a counted handle for the last time. If it is mapped, keeps `block` and
 * returns true: the block is then in no other table. */
bool mappings_keep(const struct block *block);
/* Call when the program got the handle back (cuMemRetainAllocationHandle). Returns true with the kept block
 * in *out, or false if none is kept. */
bool mappings_take_back(uint64_t handle, struct block *out);

/* Forgets the mappings in a range that was unmapped. Returns true with a kept block that is no longer mapped
 * anywhere in *gone: call again until it returns false. */
bool mappings_remove(uint64_t address, uint64_t bytes, struct block *gone);

void mappings_clear(void); /* tests */

#endif
