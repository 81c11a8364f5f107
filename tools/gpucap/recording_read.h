/* recording_read: reads a recording (interpose/see/recording.h) into memory: its events in order of time, and
 * its names. Files are untrusted and may be truncated or damaged: unreadable parts are skipped and counted,
 * and recording_remark() reports them. Every size, id and text is checked; texts are free of control
 * characters. Owns no lock. */
#ifndef GPUCAP_RECORDING_READ_H
#define GPUCAP_RECORDING_READ_H

#include "interpose/see/recording.h"

#include <stdbool.h>
#include <stddef.h>

#define RECORDING_WHY        384
#define RECORDING_EVENTS_MAX (UINT64_C(1) << 26) /* of one file; 3.5 GiB of memory */
#define RECORDING_NAMES_MAX  (UINT64_C(1) << 28) /* bytes of names and stacks of one file */
#define RECORDING_BYTES_MAX                                                                                  \
    (UINT64_C(1) << 53) /* larger sizes and times are invalid: numbers stay exact as doubles */

/* One or more texts, each ended by a zero byte, and another zero byte at the end. */
struct recording_text {
    uint32_t id;
    uint32_t bytes; /* without the last zero byte */
    char *text;
};

struct recording_names {
    struct recording_text *entries; /* by id */
    size_t count, room;
};

struct recording_frames {
    uint32_t id, count;
    uint64_t *frames;
};

struct recording_stacks {
    struct recording_frames *entries; /* by id */
    size_t count, room;
};

struct recording {
    struct recording_head head;
    struct recording_event *events; /* by time; only valid ones */
    size_t count, room;
    struct recording_names owners, tags, threads, devices, program, modules;
    struct recording_stacks stacks;
    uint64_t names_bytes;
    uint64_t blocks, damaged, foreign; /* all blocks; those that could not be read */
    uint64_t damaged_events;           /* that the damaged blocks may have held */
    uint64_t missing;                  /* bytes of the file after the last whole block */
    uint64_t odd;                      /* invalid records, which were skipped */
    uint64_t dropped;                  /* lost events, as counted by the recorder */
    bool ended;                        /* the recording was closed properly */
};

/* Returns true if the path is a file that begins as a recording does. */
bool recording_is(const char *path);

/* Reads a file. Returns 0, or -1 with a sentence in `why`; then the caller need not close it. */
int recording_open(struct recording *recording, const char *path, char why[RECORDING_WHY]);

/* The same from memory. */
int recording_parse(struct recording *recording, const void *bytes, size_t count, char why[RECORDING_WHY]);

void recording_close(struct recording *recording);

/* Makes room for one more entry of a growing array. Returns the place after the last entry, or NULL. */
void *recording_room(void **entries, size_t count, size_t *room, size_t size);

/* Writes what is missing, as a sentence without a full stop. Returns false if nothing is. */
bool recording_remark(const struct recording *recording, char text[RECORDING_WHY]);

/* Returns the text at `index` of the names with this id; "" if there is none. */
const char *recording_text(const struct recording_names *names, uint32_t id, unsigned index);

/* Returns NULL if there is none. */
const struct recording_frames *recording_stack(const struct recording *recording, uint32_t id);

/* Return host name, job's name and command line; "" if unknown. */
enum recording_program { RECORDING_HOST_NAME, RECORDING_JOB_NAME, RECORDING_COMMAND };
const char *recording_program(const struct recording *recording, enum recording_program part);

#endif
