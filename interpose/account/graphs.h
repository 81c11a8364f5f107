/* graphs: which executable graphs allocate device memory, and how much more of a card a launch may take.
 *
 * The driver gives allocation nodes their addresses when they are made, and memory when the graph is launched
 * or uploaded; nodes of a graph share memory by having the same addresses, and in no other way. So the pages
 * behind all addresses of a graph are its footprint on a card. The memory comes from what the driver holds
 * for graphs on that card, and stays there. Graphs that cannot run at once may share it, and get memory of
 * their own when they are launched so that they could: a launch is only known to need nothing more while
 * nothing has changed since the last one of the same graph, or when all graphs together need no more.
 *
 * Launches that only repeat what has been go side by side; one that may take memory on a card goes alone
 * there, since what it finds of no use must not go to another meanwhile.
 *
 * Numbers and locks: calls nothing of the driver.
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

/* What the driver holds for graphs on a card. */
struct graphs_pool {
    uint64_t held, used;
};

/* A launch or an upload between the question and the driver's answer. */
struct graphs_ask {
    const void *exec; /* NULL: has no handle yet */
    struct graphs_part part;
    uintptr_t stream; /* fence.h's key */
    uint64_t need;    /* what the driver may take beyond what it holds */
    bool again;       /* as the last one: nothing is asked */
    bool alone;       /* nobody else takes or gives back memory of this card's graphs meanwhile */
    bool moved;       /* memory may go from one graph to another */
};

/* True: as the last one, and graphs_end must follow. `held`: what the driver holds. */
bool graphs_again(struct graphs_ask *ask, uint64_t held);
/* Else: waits for the other launches on the card, and keeps them waiting until graphs_end, which must follow.
 * Not for ever, as a program can hold up a launch in the driver: then it is not alone, and needs all its
 * bytes. */
void graphs_alone(struct graphs_ask *ask);
/* The driver has given unused memory of the card back: no graph can be sure of its own. Only while alone. */
void graphs_trimmed(const struct graphs_ask *ask);
/* Writes ask->need. */
void graphs_need(struct graphs_ask *ask, const struct graphs_pool *pool);
/* `held`: what the driver holds now. */
void graphs_end(const struct graphs_ask *ask, bool success, uint64_t held);

#endif
