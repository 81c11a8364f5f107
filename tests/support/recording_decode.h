/* recording_decode: reads a recording that a test's own program has made, strictly: every fault ends the
 * test. (tools/gpucap reads untrusted files.) Owns no lock. */
#ifndef TESTS_SUPPORT_RECORDING_DECODE_H
#define TESTS_SUPPORT_RECORDING_DECODE_H

#include <stdbool.h>
#include <stddef.h>

#include "interpose/see/recording.h"

struct recording_decode {
    struct recording_head head;
    unsigned char *records; /* of all blocks, one after the other */
    size_t bytes;
    unsigned blocks, packed; /* all blocks; the compressed ones */
    bool cut;                /* the file ends within a block */
};

/* Reads a file. Returns false, with a reason, if it is not a recording at all. */
bool recording_decode(struct recording_decode *out, const char *path, const char **why);
void recording_decode_free(struct recording_decode *recording);

/* Returns the event behind *at with this type (0: any event), or NULL behind the last. *at begins with 0. */
const struct recording_event *recording_decode_next(const struct recording_decode *recording, size_t *at,
                                                    unsigned type);
/* Returns how many events have this type. */
size_t recording_decode_count(const struct recording_decode *recording, unsigned type);
/* Returns the name of an id that stands before byte `before` (SIZE_MAX: anywhere), or NULL. */
const char *recording_decode_name(const struct recording_decode *recording, unsigned type, uint32_t id,
                                  size_t before);
/* Returns the stack of an id, or NULL. */
const struct recording_stack *recording_decode_stack(const struct recording_decode *recording, uint32_t id);

#endif
