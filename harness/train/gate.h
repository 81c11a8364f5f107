/* A barrier that can be broken: threads that work in step meet at it, and when one fails, the others return
 * instead of waiting for ever. */
#ifndef HARNESS_GATE_H
#define HARNESS_GATE_H

#include <pthread.h>
#include <stdbool.h>

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    /* guarded by lock */
    int members, waiting;
    unsigned turn;
    bool broken;
};

void gate_open(struct gate *gate, int members);
void gate_close(struct gate *gate);

/* Waits for all members. Returns false if the gate is broken. */
bool gate_pass(struct gate *gate);

/* Breaks the gate: every waiting and later gate_pass returns false. */
void gate_break(struct gate *gate);

#endif
