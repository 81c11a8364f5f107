/* scenario_search: the border between sizes that fail and sizes that work, found by trying. Pure: what is
 * tried is the caller's. Owns no lock. */
#ifndef HARNESS_SCENARIO_SEARCH_H
#define HARNESS_SCENARIO_SEARCH_H

#include <stdint.h>

enum search_answer { SEARCH_FAILS, SEARCH_WORKS, SEARCH_STOP /* nothing can be said: end the search */ };

struct search {
    uint64_t fails; /* the largest size that failed; 0: none was seen to fail */
    uint64_t works; /* the smallest size that worked; 0: none was seen to work */
    unsigned tries; /* made so far */
    uint64_t grain; /* sizes are multiples of it; the search ends when the two are this near */
    unsigned most;  /* tries, at most */
    uint64_t limit; /* the largest size to try */
};

typedef enum search_answer search_fn(uint64_t size, void *arg);

/* Begins at `low` (likely to fail) and `high` (likely to work); widens where that guess was wrong. 0, or -1
 * when the search was stopped or ran out of tries; what was found until then is in the structure. */
int search_run(struct search *search, uint64_t low, uint64_t high, search_fn *try, void *arg);

#endif
