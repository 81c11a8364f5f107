/* timeline: a recording's contents for one device: its blocks, and step by step the live and idle bytes and
 * the limit. Pure: computed once from the events, no other state, no locks.
 *
 * Bytes in use are the sum of live blocks (each with owner, tag and kind), the contexts' own memory, idle
 * memory in gpucap's pools and in the driver's, and what the driver counts beyond these (unnamed). */
#ifndef GPUCAP_TIMELINE_H
#define GPUCAP_TIMELINE_H

#include "tools/gpucap/recording_read.h"

#define TIMELINE_NEVER UINT64_MAX /* end_ns of a block that was never freed */
#define TIMELINE_NO    UINT64_MAX /* no limit */

struct timeline_block {
    uint64_t start_ns, end_ns;
    uint64_t address; /* or any number, for kinds without addresses */
    uint64_t bytes, stream;
    uint32_t stack, thread;
    uint16_t owner, tag;
    uint8_t kind; /* enum recording_kind */
};

enum timeline_change {
    TIMELINE_ALLOC,
    TIMELINE_FREE,
    TIMELINE_HELD,
    TIMELINE_CONTEXT,
    TIMELINE_UNNAMED,
    TIMELINE_LIMIT,
    TIMELINE_DRIVER
};

struct timeline_step {
    uint64_t time_ns;
    uint64_t value; /* bytes: of the block, or the new figure */
    uint32_t block; /* TIMELINE_ALLOC and TIMELINE_FREE: which one */
    uint8_t change; /* enum timeline_change */
    uint8_t limit;  /* TIMELINE_LIMIT: enum recording_limit */
};

struct timeline_state {
    uint64_t live;      /* in blocks, except imported ones */
    uint64_t pool_live; /* the part of it that lies in gpucap's pools */
    uint64_t held;      /* by gpucap's pools */
    uint64_t context, unnamed;
    uint64_t driver; /* idle in the driver's own stream-ordered pools */
    uint64_t limit;  /* TIMELINE_NO: none */
    uint8_t limit_kind;
};

struct timeline {
    const struct recording *recording;
    uint16_t device;
    struct timeline_block *blocks;
    size_t block_count, block_room;
    struct timeline_step *steps;
    size_t step_count, step_room;
    const struct recording_event **marks; /* refusals, waits, loans, stitches: in order of time */
    size_t mark_count, mark_room;
    uint64_t end_ns;    /* the last event of the recording */
    size_t peak;        /* number of steps until most was in use; among equal ones, until most was live */
    size_t live_peak;   /* the same for what was live */
    uint64_t unmatched; /* releases of blocks that were allocated before the recording began */
    bool measured;      /* the driver's figure for the process is known, from NVML */
};

/* Writes the devices of the events, ascending. Returns their number, at most `room`. */
size_t timeline_devices(const struct recording *recording, uint16_t *devices, size_t room);

/* Returns false without memory; then the caller need not close it. The recording must outlive the timeline.
 */
bool timeline_open(struct timeline *timeline, const struct recording *recording, uint16_t device);
void timeline_close(struct timeline *timeline);

/* Takes one step. Begin with TIMELINE_START. */
#define TIMELINE_START ((struct timeline_state){.limit = TIMELINE_NO})
void timeline_advance(struct timeline_state *state, const struct timeline *timeline,
                      const struct timeline_step *step);

/* Returns the state after `steps` steps. */
struct timeline_state timeline_state_after(const struct timeline *timeline, size_t steps);

/* Returns the number of steps up to `time_ns`, inclusive. */
size_t timeline_steps_until(const struct timeline *timeline, uint64_t time_ns);

uint64_t timeline_idle(const struct timeline_state *state);  /* in gpucap's pools */
uint64_t timeline_named(const struct timeline_state *state); /* live, contexts and unnamed */
uint64_t timeline_used(const struct timeline_state *state);  /* the same and all idle memory */

/* ---- who holds it ---- */

enum timeline_by { TIMELINE_BY_OWNER, TIMELINE_BY_KIND, TIMELINE_BY_TAG };

struct timeline_share {
    uint16_t id; /* of the owner, kind or tag */
    uint64_t bytes;
};

/* Returns the owner, kind or tag of a block. */
uint16_t timeline_id(const struct timeline_block *block, enum timeline_by by);

/* Computes the live bytes after `steps` steps, largest first. Returns the number of shares, written to a new
 * array in *shares, which the caller frees; 0 also without memory. */
size_t timeline_shares(const struct timeline *timeline, size_t steps, enum timeline_by by,
                       struct timeline_share **shares);

/* Finds the blocks that are live after `steps` steps, largest first; returns their indices as
 * timeline_shares() does. */
size_t timeline_live_blocks(const struct timeline *timeline, size_t steps, uint32_t **indices);

/* Returns "cuDNN", "activations", "cudaMallocAsync"; for id 0 "program" or "no tag". */
const char *timeline_name(const struct recording *recording, enum timeline_by by, uint16_t id);

/* Returns TIMELINE_BY_TAG if most live bytes have tags then, else TIMELINE_BY_OWNER. */
enum timeline_by timeline_best_by(const struct timeline *timeline, size_t steps);

#endif
