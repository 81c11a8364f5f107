/* recording_model: what a recording says of one device: its blocks, and step by step what was live, idle and
 * allowed. Pure: computed once from the events, no state beside the model, no locks.
 *
 * Bytes in use are the sum of: live blocks (each with owner, tag and kind), what contexts hold for
 * themselves, what idles in gpucap's pools, and what the driver counts beyond that (unnamed).
 */
#ifndef GPUCAP_RECORDING_MODEL_H
#define GPUCAP_RECORDING_MODEL_H

#include "recording_read.h"

#define MODEL_NEVER UINT64_MAX /* end_ns of a block that was never freed */
#define MODEL_NO    UINT64_MAX /* limit that is none */

struct model_block {
    uint64_t start_ns, end_ns;
    uint64_t address; /* or any number, for kinds without addresses */
    uint64_t bytes, stream;
    uint32_t stack, thread;
    uint16_t owner, tag;
    uint8_t kind; /* enum recording_kind */
};

enum model_change { MODEL_ALLOC, MODEL_FREE, MODEL_HELD, MODEL_CONTEXT, MODEL_UNNAMED, MODEL_LIMIT };

struct model_step {
    uint64_t time_ns;
    uint64_t value; /* bytes: of the block, or the new figure */
    uint32_t block; /* MODEL_ALLOC and MODEL_FREE: which one */
    uint8_t change; /* enum model_change */
    uint8_t limit;  /* MODEL_LIMIT: enum recording_limit */
};

struct model_state {
    uint64_t live;      /* in blocks, without what was imported from other processes */
    uint64_t pool_live; /* the part of it that lies in gpucap's pools */
    uint64_t held;      /* by gpucap's pools */
    uint64_t context, unnamed;
    uint64_t limit; /* MODEL_NO: none */
    uint8_t limit_kind;
};

struct model {
    const struct recording *recording;
    uint16_t device;
    struct model_block *blocks;
    size_t block_count, block_room;
    struct model_step *steps;
    size_t step_count, step_room;
    const struct recording_event **marks; /* refusals, waits, loans, stitches: in order of time */
    size_t mark_count, mark_room;
    uint64_t end_ns;  /* the last event of the recording */
    size_t peak;      /* number of steps until the most was in use; of equal ones, until the most was live */
    size_t live_peak; /* the same for what was live */
    uint64_t unmatched; /* releases of blocks that were allocated before the recording began */
    uint64_t lost;      /* blocks whose release the recording does not have */
};

/* Devices of the events, ascending; returns their number, at most `room`. */
size_t model_devices(const struct recording *recording, uint16_t *devices, size_t room);

/* False without memory; then nothing has to be closed. The recording must outlive the model. */
bool model_open(struct model *model, const struct recording *recording, uint16_t device);
void model_close(struct model *model);

/* Takes one step. Begin with MODEL_START. */
#define MODEL_START ((struct model_state){.limit = MODEL_NO})
void model_advance(struct model_state *state, const struct model *model, const struct model_step *step);

/* The state after `steps` steps. */
struct model_state model_state_after(const struct model *model, size_t steps);

/* The number of steps that happened until `time_ns`, inclusive. */
size_t model_steps_until(const struct model *model, uint64_t time_ns);

uint64_t model_idle(const struct model_state *state);
uint64_t model_named(const struct model_state *state); /* live, contexts and unnamed */
uint64_t model_used(const struct model_state *state);  /* the same and what idles */

/* ---- who holds it ---- */

enum model_by { MODEL_BY_OWNER, MODEL_BY_KIND, MODEL_BY_TAG };

struct model_share {
    uint16_t id; /* of the owner, kind or tag */
    uint32_t blocks;
    uint64_t bytes;
};

/* Live bytes after `steps` steps, largest first. Returns the number of shares, written to a new array in
 * *shares, which the caller frees; 0 also without memory. */
size_t model_shares(const struct model *model, size_t steps, enum model_by by, struct model_share **shares);

/* Indices of the blocks that are live after `steps` steps, largest first, as model_shares(). */
size_t model_live_blocks(const struct model *model, size_t steps, uint32_t **indices);

/* "cuDNN", "activations", "cudaMallocAsync"; for id 0 "program" or "no tag". */
const char *model_name(const struct recording *recording, enum model_by by, uint16_t id);

/* By tag if the program sets tags for most of what is live then, else by owner. */
enum model_by model_best_by(const struct model *model, size_t steps);

#endif
