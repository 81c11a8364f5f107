/* recording_make: writes recordings for tests: record by record, or a whole training of any length that looks
 * like real ones. Ends the program when a file cannot be written. Owns no lock.
 */
#ifndef TESTS_RECORDING_MAKE_H
#define TESTS_RECORDING_MAKE_H

#include "interpose/see/recording.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct recording_make {
    FILE *file;
    int codec; /* RECORDING_PLAIN or RECORDING_ZSTD, if this build has it */
    uint32_t block_bytes;
    unsigned char *block;
    uint64_t events;
};

/* Returns false if this build cannot write that codec. */
bool recording_make_open(struct recording_make *make, const char *path, struct recording_head head,
                         int codec);
/* Adds an event; sets the type and size of its record. */
void recording_make_event(struct recording_make *make, uint16_t type, struct recording_event event);
/* Adds a name: `bytes` of text, with zero bytes between its parts. */
void recording_make_name(struct recording_make *make, uint16_t type, uint32_t id, const char *text,
                         size_t bytes);
void recording_make_stack(struct recording_make *make, uint32_t id, const uint64_t *frames, uint32_t count);
/* With `ended`, writes the record of a regular end first. */
void recording_make_close(struct recording_make *make, uint64_t time_ns, bool ended);

/* Process 0 trains a large model, 1 a small one that waits for memory, which 0 lends. About `events` events.
 */
struct recording_training {
    unsigned process;
    uint64_t events;
    int codec;
    const char *command; /* NULL: one that fits */
    bool killed;         /* no end */
};
void recording_make_training(const char *path, const struct recording_training *training);

#endif
