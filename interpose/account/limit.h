/* limit: may this much more be taken? Pure policy on numbers: no CUDA, no clock, no locks.
 *
 * The driver's own figure for this process (by NVML) is the truth, because a context grows by itself:
 * modules, streams, stacks, the rounding of small blocks. It costs 20 us to ask (measured on an H200), so it
 * is not asked each time: a measurement is trusted until half of the room that it showed has been granted
 * away. Near the limit that means asking every time, far from it almost never.
 */
#ifndef GPUCAP_LIMIT_H
#define GPUCAP_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* The driver hands out device memory in pages of this size; smaller blocks share one (measured, H200). */
#define LIMIT_PAGE (UINT64_C(2) << 20)

/* Memory pools of the driver grow in steps of this size (measured, H200). */
#define LIMIT_STEP (UINT64_C(32) << 20)

struct limit_state {
    uint64_t limit;
    uint64_t reserve;    /* left to the driver's own growth */
    uint64_t measured;   /* this process on this card, when last asked */
    uint64_t unmeasured; /* granted since that measurement began */
    uint64_t in_flight;  /* granted, and the driver has not answered yet */
    bool stale;          /* the driver may have grown since: measure before the next grant */
};

enum limit_verdict {
    LIMIT_GRANT,
    LIMIT_MEASURE, /* ask the driver, then decide again */
    LIMIT_WAIT,    /* others are between grant and answer; decide again after them */
    LIMIT_REFUSE,
};

/* bytes rounded up to what the driver takes for them; the largest number if that overflows. */
uint64_t limit_round(uint64_t bytes);
/* To what a memory pool of the driver's takes for them; graphs have one, taken to be as the others. */
uint64_t limit_round_step(uint64_t bytes);

/* `need` is rounded. `fresh`: the caller has measured since it began to ask. */
enum limit_verdict limit_decide(const struct limit_state *state, uint64_t need, bool fresh);

/* What may be granted beside the reserve without a measurement. */
uint64_t limit_trusted(const struct limit_state *state);

/* What could be granted now, by the figures at hand; a multiple of LIMIT_PAGE. */
uint64_t limit_room(const struct limit_state *state);

/* What must be given back before `need` can be granted, by the figures at hand. More than `need` where the
 * driver's own growth has used the reserve. */
uint64_t limit_short(const struct limit_state *state, uint64_t need);

#endif
