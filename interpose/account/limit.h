/* limit: decides whether more memory may be granted. Pure policy on numbers: no CUDA, no clock, no locks.
 *
 * The driver's own figure for this process (from NVML) is the truth, because a context grows by itself:
 * modules, streams, stacks, the rounding of small blocks. To ask costs 20 us (measured on an H200), so a
 * measurement is trusted until half of the room that it showed has been granted. Near the limit that means
 * asking every time, far from it almost never.
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
    uint64_t measured;   /* bytes of this process on this card, at the last measurement */
    uint64_t unmeasured; /* granted since that measurement began */
    uint64_t in_flight;  /* granted, and the driver has not answered yet */
    bool stale;          /* the driver may have grown since: measure before the next grant */
};

enum limit_verdict {
    LIMIT_GRANT,
    LIMIT_MEASURE, /* ask the driver, then decide again */
    LIMIT_WAIT,    /* others are in flight; decide again after them */
    LIMIT_REFUSE,
};

/* Rounds bytes up to what the driver takes for them; UINT64_MAX if that overflows. */
uint64_t limit_round(uint64_t bytes);
/* The same for a memory pool of the driver. Its memory for graphs is assumed to behave like one. */
uint64_t limit_round_step(uint64_t bytes);

/* Returns what is in use or granted. */
uint64_t limit_taken(const struct limit_state *state);

/* Decides on a request of `need` bytes, rounded. `fresh`: the caller has measured during this request. */
enum limit_verdict limit_decide(const struct limit_state *state, uint64_t need, bool fresh);

/* Returns how much limit_decide would grant now without asking for a measurement. */
uint64_t limit_trusted(const struct limit_state *state);

/* Returns the room below the limit and the reserve by the last measurement, a multiple of LIMIT_PAGE. */
uint64_t limit_room(const struct limit_state *state);

/* Returns what must be given back before `need` can be granted, by the last measurement. It is more than
 * `need` where the driver's own growth has used the reserve. */
uint64_t limit_short(const struct limit_state *state, uint64_t need);

#endif
