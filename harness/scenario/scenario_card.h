/* scenario_card: "a card of S bytes": a simulated card of that size, or on a large GPU the same card with the
 * rest held by a ballast process.
 *
 * The children that are started afterwards see it. A simulated card is a new, empty machine each time. Owns
 * no lock: one thread, one card. */
#ifndef HARNESS_SCENARIO_CARD_H
#define HARNESS_SCENARIO_CARD_H

#include <stdbool.h>
#include <stdint.h>

struct card_choice {
    bool simulated;
    uint64_t whole;      /* bytes of the GPU, or of the largest simulated card */
    uint64_t context;    /* what one process holds before it asks for anything */
    uint64_t set;        /* the size now */
    char name[96];       /* "NVIDIA H200" */
    const char *problem; /* why the last call failed */
};

/* Looks for a GPU unless simulated. 0, or -1 with the reason in problem. */
int card_choose(struct card_choice *card, bool simulated);
/* From now on the card has `bytes` (rounded to 2 MiB). 0, or -1 with the reason in problem. */
int card_resize(struct card_choice *card, uint64_t bytes);
void card_leave(struct card_choice *card);

#endif
