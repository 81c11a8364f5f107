/* scenario_search: finds the smallest size that works by trying sizes. Pure: the caller's function does the
 * trying. Owns no lock. */
#ifndef HARNESS_SCENARIO_SEARCH_H
#define HARNESS_SCENARIO_SEARCH_H

#include <stdint.h>

enum search_answer { SEARCH_FAILS, SEARCH_WORKS, SEARCH_STOP /* no answer: end the search */ };

struct search {
    uint64_t fails; /* largest size that failed; 0: none yet */
    uint64_t works; /* smallest size that worked; 0: none yet */
    unsigned tries; /* made so far */
    uint64_t grain; /* sizes are multiples of it; the search ends when `fails` and `works` are this close */
    unsigned most;  /* limit of tries */
    uint64_t limit; /* largest size to try */
};

typedef enum search_answer search_fn(uint64_t size, void *arg);

/* Starts with `low`, which likely fails, and `high`, which likely works, and widens the range where that is
 * wrong. *search holds what is known at the end, also if it was stopped or ran out of tries. */
void search_run(struct search *search, uint64_t low, uint64_t high, search_fn *try, void *arg);

/* The same between search->fails and search->works, which the caller knows already. */
void search_narrow(struct search *search, search_fn *try, void *arg);

#endif
