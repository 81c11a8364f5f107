/* limit: see limit.h. Every sum saturates, so that no hostile number wraps around into a grant. */
#include "interpose/account/limit.h"

#include "interpose/base/sums.h"

uint64_t limit_round(uint64_t bytes)
{
    return bytes > UINT64_MAX - LIMIT_PAGE ? UINT64_MAX : (bytes + LIMIT_PAGE - 1) & ~(LIMIT_PAGE - 1);
}

uint64_t limit_round_step(uint64_t bytes)
{
    return bytes > UINT64_MAX - LIMIT_STEP ? UINT64_MAX : (bytes + LIMIT_STEP - 1) & ~(LIMIT_STEP - 1);
}

uint64_t limit_taken(const struct limit_state *state)
{
    return sums_add(state->measured, sums_add(state->unmeasured, state->in_flight));
}

static bool fits(const struct limit_state *state, uint64_t need)
{
    return sums_add(sums_add(limit_taken(state), need), state->reserve) <= state->limit;
}

/* At most half of what the measurement showed to be free is granted. */
uint64_t limit_trusted(const struct limit_state *state)
{
    const uint64_t seen = sums_minus(sums_minus(state->limit, state->reserve), state->measured);

    return state->stale ? 0 : sums_minus(seen / 2, sums_add(state->unmeasured, state->in_flight));
}

enum limit_verdict limit_decide(const struct limit_state *state, uint64_t need, bool fresh)
{
    if (sums_add(need, state->reserve) > state->limit)
        return LIMIT_REFUSE; /* can never fit */
    if (!state->stale && need <= limit_trusted(state))
        return LIMIT_GRANT;
    if (!fresh || state->stale)
        return LIMIT_MEASURE;
    if (fits(state, need))
        return LIMIT_GRANT;
    /* Too much by the driver's own figure, however the requests in flight end: do not wait for them. */
    if (sums_add(sums_add(state->measured, need), state->reserve) > state->limit)
        return LIMIT_REFUSE;
    /* What others were granted during our measurement may be counted twice. */
    return state->in_flight ? LIMIT_WAIT : LIMIT_MEASURE;
}

uint64_t limit_short(const struct limit_state *state, uint64_t need)
{
    return sums_minus(sums_add(sums_add(limit_taken(state), need), state->reserve), state->limit);
}

uint64_t limit_room(const struct limit_state *state)
{
    return sums_minus(sums_minus(state->limit, state->reserve), limit_taken(state)) & ~(LIMIT_PAGE - 1);
}
