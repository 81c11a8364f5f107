/* live: the blocks that are live according to a recording's events, and their sums by card, owner, kind and
 * tag.
 *
 * The recorder's thread alone changes it; any thread may read the sums. Memory comes from mmap. Owns one
 * lock, held for a few instructions.
 */
#ifndef GPUCAP_LIVE_H
#define GPUCAP_LIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/see/recording.h"

#define LIVE_ROWS 1024 /* combinations of card, owner, kind and tag; any beyond count under the first */

/* What blocks have in common. */
struct live_row {
    uint16_t device, owner, tag;
    uint8_t kind;
    uint64_t bytes, blocks, peak; /* peak: of bytes */
};

/* Enters a block. A block that is still known under this number is gone: its release was not seen. */
void live_add(const struct recording_event *event);

/* Removes the block of a release, and fills in what was known of it. Returns false if it is not known. */
bool live_take(struct recording_event *event);

/* Removes one block whose address lies in a range, and fills in its event. Returns false if none is left. */
bool live_take_within(uint64_t start, uint64_t bytes, struct recording_event *event);

/* Calls `visit` with the allocation of each block, without its time. For the recorder's thread. */
void live_each(void (*visit)(struct recording_event *event));

/* Copies row number `index`. Returns false behind the last. */
bool live_row(size_t index, struct live_row *row);

/* Forgets everything. */
void live_clear(void);

#endif
