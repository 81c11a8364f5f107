/* job_race: many processes race for one job's budget, watched from outside by NVML and by the ledger.
 *
 * The controller (job_race.c) runs without the library and starts workers (job_race_worker.c) under it. They
 * share one page. A worker enters what it wants there before it asks for it, so that the controller knows an
 * upper bound of what is wanted at any time: while that bound fits into the budget, no request may be
 * refused. Owns no lock.
 */
#ifndef TESTS_GPU_JOB_RACE_H
#define TESTS_GPU_JOB_RACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define JOB_RACE_WORKERS 64
#define JOB_RACE_MIB     (UINT64_C(1) << 20)

/* What all processes of a race share. The sum of `wanted` is the bound. */
struct job_race_page {
    _Atomic uint64_t most;     /* bytes that the workers may want together; 0: end */
    atomic_uint phase;         /* odd: the bound has fitted into the budget since this number was set */
    uint64_t largest;          /* bytes of the largest request */
    unsigned workers, threads; /* threads of each worker */
    struct job_race_worker {
        _Atomic uint64_t wanted;  /* held, or asked for */
        atomic_ulong asked;       /* requests so far */
        atomic_ulong refused;     /* while more was wanted than there is */
        atomic_ulong wrongly;     /* refused while all that was wanted fitted */
        atomic_ulong other_codes; /* answers that are neither success nor out of memory */
        atomic_bool started;      /* has a context */
    } of[JOB_RACE_WORKERS];
    /* for the death of a holder */
    atomic_uint step;            /* 1: the holder holds; 2: the taker asks; 3: the taker has it */
    _Atomic uint64_t got_at;     /* CLOCK_MONOTONIC, ns */
    _Atomic uint64_t hold_bytes; /* of the holder, and of the taker after it */
};

/* Runs as worker `number` of the page in descriptor `fd`, until the race ends. Returns the exit status. */
int job_race_work(struct job_race_page *page, unsigned number);

/* The holder, and the taker that asks until it has what the holder held. Return the exit status. */
int job_race_hold(struct job_race_page *page);
int job_race_take(struct job_race_page *page);

#endif
