/* recorder: writes what the threads note (events.h) to a file (recording.h), and keeps the sums of what is
 * live (live.h).
 *
 * One thread of its own reads the rings, puts their events into one order, adds the names that they use, and
 * writes a block at latest every RECORDER_FLUSH_MS. It blocks every signal, never calls the driver, and does
 * not exist in a forked child. If the file cannot be written, the recording ends with one line on stderr, and
 * the program goes on. Owns one lock, held for a few instructions, and while a recording is started.
 */
#ifndef GPUCAP_RECORDER_H
#define GPUCAP_RECORDER_H

#include "interpose/see/recording_write.h"

#define RECORDER_FLUSH_MS  200
#define RECORDER_SAMPLE_MS 1000 /* least time between two measurements */
#define RECORDER_UNKNOWN   UINT64_MAX

struct recorder_settings {
    const char *file; /* with %p and %h */
    const char *job;  /* or "" */
    bool stacks;
    /* Calls add() for each block that is live when the recording begins (type 0), and for events with the
     * figures of that moment (with their type). May be NULL. Called by the recorder's thread. */
    void (*list_live)(void (*add)(struct recording_event *event));
    /* Calls used() for each card that can be measured, with the driver's figure and the part of it that idles
     * in the driver's own stream-ordered pools (RECORDER_UNKNOWN: as before). May be NULL. Called by the
     * recorder's thread, once per RECORDER_SAMPLE_MS while there are events. */
    void (*sample)(void (*used)(int device, uint64_t bytes, uint64_t idle));
};

/* Starts a recording. Returns 0, -EALREADY if one runs, or another -errno after one line on stderr. */
int recorder_start(const struct recorder_settings *settings);

/* Ends the recording: everything noted so far is written. Waits for that at most 2 s, not counting time in
 * which the process was stopped. For exit handlers too. */
void recorder_stop(void);

/* Waits until everything noted so far is in the file and in the sums, a second at most. Returns false if no
 * recording runs or it took longer. */
bool recorder_sync(void);

/* Returns true if a recording runs, and copies its path. */
bool recorder_runs(char path[RECORDING_WRITE_PATH]);

/* Returns why the last recorder_start failed, as a sentence without a full stop. */
const char *recorder_why(void);

/* Returns what the contexts of a card hold for themselves, as of the last measurement. */
uint64_t recorder_context_bytes(int device);
/* Returns what idles in the driver's own stream-ordered pools of a card, likewise. */
uint64_t recorder_driver_idle(int device);

/* Names a card. Call before its first event; later calls do nothing. */
void recorder_name_device(int device, const char *name, const char *uuid, uint64_t total);

/* In the child of a fork: the recording is the parent's. */
void recorder_after_fork(void);

/* ---- the thread's steps, for tests ---- */

int recorder_open(const struct recorder_settings *settings, char reason[RECORDING_WRITE_WHY]);
/* Reads all rings. `flush`: writes what there is, however little. Returns 0, or -errno if the recording has
 * ended because of an error. */
int recorder_step(bool flush);
void recorder_close(void);

#endif
