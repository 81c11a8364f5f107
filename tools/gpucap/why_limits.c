/* why_limits: see why_limits.h. */
#include "tools/gpucap/why_limits.h"

#include <string.h>

#include "interpose/base/sums.h"
#include "interpose/settings/options.h"

uint64_t why_limits_in_use(const struct ledger_refusal *refusal)
{
    return refusal->bound == RECORDING_LIMIT_JOB && refusal->job_used > refusal->used ? refusal->job_used
                                                                                      : refusal->used;
}

bool why_limits_is_kept(const struct ledger_refusal *refusal)
{
    return refusal->bound == RECORDING_LIMIT_KEPT;
}

bool why_limits_left_enough(const struct ledger_refusal *refusal)
{
    return refusal->bound == RECORDING_LIMIT_CARD || why_limits_is_kept(refusal) ||
           refusal->asked <= refusal->fits;
}

/* Where nothing was left, what is in use may reach into the reserve, or beyond a limit that was lowered. */
uint64_t why_limits_needed(const struct ledger_refusal *refusal)
{
    if (why_limits_left_enough(refusal))
        return refusal->limit;
    const uint64_t needed = sums_add(refusal->limit, refusal->asked - refusal->fits);
    const uint64_t beside =
        sums_add(sums_add(why_limits_in_use(refusal), refusal->asked), OPTIONS_RESERVE_STANDARD);
    return refusal->fits || needed > beside ? needed : beside;
}

uint64_t why_limits_other(const struct ledgers_process *process, const struct ledger_refusal *refusal)
{
    return refusal->bound == RECORDING_LIMIT_JOB ? process->entry.limit : process->entry.job_max;
}

/* Returns by how much that other limit is too low for the request; 0: it is not. Idle memory and the reserve
 * count as they did for the limit that refused; if that left nothing, all of the reserve is missing. */
static uint64_t other_missing(const struct ledgers_process *process, const struct ledger_refusal *refusal)
{
    const uint64_t other = why_limits_other(process, refusal);
    const uint64_t used = refusal->bound == RECORDING_LIMIT_JOB ? refusal->used : refusal->job_used;
    const uint64_t room =
        refusal->fits ? sums_minus(refusal->limit, why_limits_in_use(refusal)) : OPTIONS_RESERVE_STANDARD;

    if (why_limits_left_enough(refusal) || other == LEDGER_UNLIMITED)
        return 0;
    /* asked - (fits + the room of the other - the room of this one) */
    return sums_minus(sums_add(sums_add(refusal->asked, room), used), sums_add(refusal->fits, other));
}

uint64_t why_limits_now(const struct ledgers_process *process, const struct ledger_refusal *refusal)
{
    return refusal->bound == RECORDING_LIMIT_JOB ? process->entry.job_max : process->entry.limit;
}

bool why_limits_is_neighbour(const struct ledgers_process *process, const struct ledgers_process *other)
{
    return other != process && *process->entry.job && !strcmp(other->entry.job, process->entry.job);
}

uint64_t why_limits_idle_of_others(const struct ledgers_card *card, const struct ledgers_process *process)
{
    uint64_t idle = 0;

    for (int i = 0; i < card->count; i++) {
        if (why_limits_is_neighbour(process, &card->processes[i]))
            idle = sums_add(idle, card->processes[i].entry.cached);
    }
    return idle;
}

/* The library asks the job's other processes for idle memory only if the process's own limit allows the
 * request. If that limit was too low, their idle memory still counts as available. */
struct why_lacks why_limits_find_lacks(const struct ledgers_card *card, const struct ledgers_process *process,
                                       const struct ledger_refusal *refusal)
{
    const bool is_job = refusal->bound == RECORDING_LIMIT_JOB;
    struct why_lacks lacks = {0};

    if (why_limits_left_enough(refusal))
        return lacks;
    lacks.refused = sums_minus(why_limits_needed(refusal), why_limits_now(process, refusal));
    if (!card->facts.known || why_limits_other(process, refusal) < card->facts.total) /* else it is none */
        lacks.other = other_missing(process, refusal);
    uint64_t *job = is_job ? &lacks.refused : &lacks.other, *own = is_job ? &lacks.other : &lacks.refused;
    if (*own && *job <= why_limits_idle_of_others(card, process)) {
        lacks.idle = *job;
        *job = 0;
    }
    return lacks;
}

struct why_needs why_limits_find_needs(const struct why_lacks *lacks, const struct ledgers_process *process,
                                       const struct ledger_refusal *refusal)
{
    const bool is_job = refusal->bound == RECORDING_LIMIT_JOB;
    const uint64_t refused = lacks->refused ? why_limits_needed(refusal) : 0;
    const uint64_t other = lacks->other ? sums_add(why_limits_other(process, refusal), lacks->other) : 0;

    return (struct why_needs){.max = is_job ? refused : other,
                              .each = is_job ? other : refused,
                              .most = other > refused ? other : refused};
}
