/* scenario_card: a card of a given size: a simulated one, or a large GPU whose remaining memory a ballast
 * process holds. Children started later see it. Each simulated card is a new, empty machine. Owns no lock:
 * one thread, one card. */
#ifndef HARNESS_SCENARIO_CARD_H
#define HARNESS_SCENARIO_CARD_H

#include <stdbool.h>
#include <stdint.h>

struct card_choice {
    bool simulated;
    uint64_t whole;      /* bytes of the GPU, or of the largest simulated card */
    uint64_t context;    /* memory of a process that has allocated nothing */
    uint64_t set;        /* current size */
    char name[96];       /* "NVIDIA H200" */
    const char *problem; /* why the last call failed */
};

/* Looks for a GPU unless `simulated`. Returns 0, or -1 with the reason in card->problem. */
int card_choose(struct card_choice *card, bool simulated);

/* Sets the card's size, rounded to 2 MiB. Returns 0, or -1 with the reason in card->problem. */
int card_resize(struct card_choice *card, uint64_t bytes);
void card_leave(struct card_choice *card);

#endif
