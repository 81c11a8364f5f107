/* A barrier that a failure opens: threads that work in step meet at it, and when one of them cannot go on,
 * the others are told instead of waiting for ever. */
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

/* Waits for all members; false if the gate is broken. */
bool gate_pass(struct gate *gate);

/* Lets everybody go, now and from now on. True for the first who does so. */
bool gate_break(struct gate *gate);

#endif
