/* graphs: which executable graphs allocate device memory, and how much more of a card a launch may take.
 *
 * The driver gives allocation nodes their addresses when they are made, and memory when the graph is launched
 * or uploaded; nodes of a graph share memory by having the same addresses, and in no other way. So the pages
 * behind all addresses of a graph are its footprint on a card. The memory comes from what the driver holds
 * for graphs on that card, and stays there. Graphs that cannot run at once may share it, and get memory of
 * their own when they are launched so that they could: a launch is only known to need nothing more while
 * nothing has changed since the last one of the same graph, or when all graphs together need no more.
 *
 * Numbers only: calls nothing of the driver. Owns one lock, held for a few instructions.
 */
#ifndef GPUCAP_GRAPHS_H
#define GPUCAP_GRAPHS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAPHS_CARDS 16 /* that one graph can be counted on */

/* What one node allocates. */
struct graphs_range {
    int card;
    uint64_t start; /* 0: nobody knows */
    uint64_t bytes;
};

/* What one graph has on one card. */
struct graphs_part {
    int card;
    uint64_t bytes;
};

/* Writes the footprint on each card, and returns how many cards there are. Sorts the ranges. */
size_t graphs_footprint(struct graphs_range *ranges, size_t count, struct graphs_part parts[GRAPHS_CARDS]);

extern _Atomic size_t graphs_known; /* rows in the table */

/* True while no graph that allocates is known: launches have nothing to ask. */
static inline bool graphs_none(void)
{
    return __builtin_expect(atomic_load_explicit(&graphs_known, memory_order_relaxed) == 0, 1);
}

/* Takes the place of what was known of this handle; no parts: it allocates nothing. 0 or -ENOMEM. */
int graphs_remember(const void *exec, const struct graphs_part *parts, size_t count);
void graphs_forget(const void *exec);
size_t graphs_find(const void *exec, struct graphs_part parts[GRAPHS_CARDS]);

/* What the driver holds for graphs on a card. `seen`: graphs_seen() from before it was asked. */
struct graphs_pool {
    uint64_t seen;
    uint64_t held, used;
};
uint64_t graphs_seen(void);

/* A launch or an upload between the question and the driver's answer. */
struct graphs_ask {
    const void *exec; /* NULL: has no handle yet */
    struct graphs_part part;
    uintptr_t stream; /* fence.h's key */
    uint64_t need;    /* what the driver may take beyond what it holds */
    bool again;       /* as the last one: nothing is asked */
    bool moved;       /* memory may go from one graph to another */
};
void graphs_begin(struct graphs_ask *ask, const struct graphs_pool *pool);
/* `held`: what the driver holds now. */
void graphs_end(const struct graphs_ask *ask, bool success, uint64_t held);

/* Unused memory is about to be given back: then no graph can be sure of its own. False: not now, a launch
 * counts on what is there. True: graphs_trimmed must follow. */
bool graphs_may_trim(void);
void graphs_trimmed(void);

#endif
