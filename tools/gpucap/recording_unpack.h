/* recording_unpack: checks and decompresses one block of a recording. Files are untrusted: every field is
 * checked, and no block makes it use more than RECORDING_BLOCK_MAX bytes. Pure: no state, no locks, no
 * allocation that outlives a call. */
#ifndef GPUCAP_RECORDING_UNPACK_H
#define GPUCAP_RECORDING_UNPACK_H

#include "interpose/see/recording.h"

#include <stdbool.h>

enum recording_unpack {
    RECORDING_UNPACK_GOOD,
    RECORDING_UNPACK_DAMAGED, /* the checksum differs, or the bytes are not a valid frame */
    RECORDING_UNPACK_FOREIGN, /* compression that this build cannot read */
};

/* Returns true if this build reads RECORDING_ZSTD. */
bool recording_unpack_has_zstd(void);

/* Writes the block's records to `plain`, which has room for RECORDING_BLOCK_MAX bytes. The head is one that
 * recording_block_is_possible() accepts, and `stored` has the number of bytes given there. */
enum recording_unpack recording_unpack(const struct recording_block *head, const unsigned char *stored,
                                       unsigned char *plain);

/* Returns true if a block may begin with this head. */
bool recording_block_is_possible(const struct recording_block *head);

#endif
