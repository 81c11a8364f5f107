/* recording_unpack: the bytes of one block of a recording, checked and decompressed. Reads files that anybody
 * may have made: every field is doubted, and no block makes it use more than RECORDING_BLOCK_MAX bytes. Pure:
 * no state, no locks, no allocation that outlives a call.
 */
#ifndef GPUCAP_RECORDING_UNPACK_H
#define GPUCAP_RECORDING_UNPACK_H

#include "interpose/see/recording.h"

#include <stdbool.h>
#include <stddef.h>

enum recording_unpack {
    RECORDING_UNPACK_GOOD,
    RECORDING_UNPACK_DAMAGED, /* the checksum differs, or the bytes are no such frame */
    RECORDING_UNPACK_FOREIGN, /* compressed in a way that this build cannot read */
};

/* True if this build reads RECORDING_ZSTD. */
bool recording_unpack_has_zstd(void);

/* FNV-1a, 64 bits, as struct recording_block has it. */
uint64_t recording_checksum(const void *bytes, size_t count);

/* Writes the block's records to `plain`, which has room for RECORDING_BLOCK_MAX bytes. The head is one that
 * recording_block_is_possible() accepts, and `stored` has as many bytes as it says. */
enum recording_unpack recording_unpack(const struct recording_block *head, const unsigned char *stored,
                                       unsigned char *plain);

/* True if a block may begin with this head. */
bool recording_block_is_possible(const struct recording_block *head);

#endif
