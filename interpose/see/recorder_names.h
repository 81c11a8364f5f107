/* recorder_names: the records of a recording that give names to numbers, each written before its first use.
 * For recorder.c; owns one lock, for the names of cards. */
#ifndef GPUCAP_RECORDER_NAMES_H
#define GPUCAP_RECORDER_NAMES_H

#include "interpose/see/recording_write.h"

/* Forgets which names the file has. */
void recorder_names_clear(void);

/* Writes who records. Returns 0 or -errno. */
int recorder_names_program(struct recording_write *file, const char *job);

/* Writes the names that an event uses and the file does not have. Returns 0 or -errno. */
int recorder_names_of(struct recording_write *file, const struct recording_event *event);

/* Call when a new thread has got the number of an ended one: its name will be written. */
void recorder_names_forget_thread(uint32_t thread);

#endif
