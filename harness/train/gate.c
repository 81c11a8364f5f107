/* A barrier that can be broken. See gate.h. */
#include "harness/train/gate.h"

void gate_open(struct gate *gate, int members)
{
    *gate = (struct gate){.members = members};
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->opened, NULL);
}

void gate_close(struct gate *gate)
{
    pthread_cond_destroy(&gate->opened);
    pthread_mutex_destroy(&gate->lock);
}

bool gate_pass(struct gate *gate)
{
    unsigned turn;
    bool good;

    pthread_mutex_lock(&gate->lock);
    turn = gate->turn;
    if (++gate->waiting == gate->members) {
        gate->waiting = 0;
        gate->turn++;
        pthread_cond_broadcast(&gate->opened);
    }
    while (gate->turn == turn && !gate->broken)
        pthread_cond_wait(&gate->opened, &gate->lock);
    good = !gate->broken;
    pthread_mutex_unlock(&gate->lock);
    return good;
}

void gate_break(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->broken = true;
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->lock);
}
