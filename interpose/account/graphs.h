/* graphs: which executable graphs allocate device memory, and how much more of a card a launch may take.
 *
 * The driver gives allocation nodes their addresses when they are created, and memory when the graph is
 * launched or uploaded. Nodes of a graph share memory only by having the same addresses, so the pages behind
 * all its addresses are a graph's footprint on a card. The memory comes from what the driver holds for graphs
 * on that card, and stays there. Graphs share it as long as their launches cannot overlap; the first
 * launch that could overlap another one gives the graph memory of its own. So a launch is known to need
 * nothing more only if nothing has changed since the last launch of the same graph, or if all graphs together
 * need no more than is held.
 *
 * Launches that only repeat earlier ones run side by side. A launch that may take memory on a card runs alone
 * there, because the unused memory that it counts on must not go to another launch meanwhile.
 *
 * Never calls the driver. Owns one lock, held for a few instructions, and one per card (`launches`), held
 * from graphs_again or graphs_alone to graphs_end, while the driver launches the graph.
 */
#ifndef GPUCAP_GRAPHS_H
#define GPUCAP_GRAPHS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAPHS_CARDS 16 /* on which one graph can be counted */

/* What one node allocates. */
struct graphs_range {
    int card;
    uint64_t start; /* 0: not known */
    uint64_t bytes;
};

/* The footprint of one graph on one card. */
struct graphs_part {
    int card;
    uint64_t bytes;
};

/* Writes the footprint on each card, and returns the number of cards; GRAPHS_CARDS + 1 if there are more than
 * can be counted. Sorts the ranges. */
size_t graphs_footprint(struct graphs_range *ranges, size_t count, struct graphs_part parts[GRAPHS_CARDS]);

extern _Atomic size_t graphs_known; /* rows in the table */

/* Returns true while no known graph allocates: launches need not ask. */
static inline bool graphs_none(void)
{
    return __builtin_expect(atomic_load_explicit(&graphs_known, memory_order_relaxed) == 0, 1);
}

/* Replaces what is known of this graph; without parts it allocates nothing. Returns 0 or -ENOMEM. */
int graphs_remember(const void *exec, const struct graphs_part *parts, size_t count);
/* Call before and after the driver destroys a graph: a graph that it refuses to destroy stays as it is. Right
 * after the driver's call another thread may get the same handle. */
void graphs_destroy_begin(const void *exec);
void graphs_destroy_end(const void *exec, bool destroyed);
size_t graphs_find(const void *exec, struct graphs_part parts[GRAPHS_CARDS]);

/* What the driver holds for graphs on a card. */
struct graphs_pool {
    uint64_t held, used;
};

/* A launch or an upload from the question to the driver's answer. */
struct graphs_ask {
    const void *exec; /* NULL: no handle yet */
    struct graphs_part part;
    uintptr_t stream; /* a key of streams.h */
    uint64_t need;    /* bytes that the driver may take beyond what it holds */
    bool again;       /* repeats the last launch: needs nothing more */
    bool alone;       /* no other launch takes or gives back graph memory of this card */
    bool moved;       /* memory may move from one graph to another */
};

/* Returns true if the launch repeats the last one and needs nothing more: graphs_end must follow. `held`:
 * what the driver holds for graphs. The caller has set exec, part and stream; the rest is 0. */
bool graphs_again(struct graphs_ask *ask, uint64_t held);
/* Call if graphs_again returned false: waits for the other launches on the card and holds back new ones until
 * graphs_end, which must follow. Waits 1 s at most, since a program can hold up a launch in the driver: then
 * ask->alone is false, and the launch needs all its bytes. */
void graphs_alone(struct graphs_ask *ask);
/* Call, while alone, after the driver gave back unused graph memory: any graph may have lost its memory. */
void graphs_trimmed(const struct graphs_ask *ask);
/* Writes ask->need. */
void graphs_need(struct graphs_ask *ask, const struct graphs_pool *pool);
/* Ends a launch or an upload. `held`: what the driver holds now. */
void graphs_end(const struct graphs_ask *ask, bool success, uint64_t held);

#endif
