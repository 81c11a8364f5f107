/* fuzz_recording: what the fuzz targets of recordings share. */
#ifndef FUZZ_RECORDING_H
#define FUZZ_RECORDING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "interpose/see/recording.h"

/* Makes the heads of all blocks right, so that what is behind the checksums is reached. */
static inline void put_checksums_right(uint8_t *bytes, size_t count)
{
    struct recording_block head;

    for (size_t at = sizeof(struct recording_head); at + sizeof(head) <= count;
         at += sizeof(head) + head.stored) {
        memcpy(&head, bytes + at, sizeof(head));
        if (head.stored > count - at - sizeof(head))
            head.stored = (uint32_t)(count - at - sizeof(head));
        head.magic = RECORDING_BLOCK;
        head.checksum = recording_checksum(bytes + at + sizeof(head), head.stored);
        if (head.codec == RECORDING_PLAIN)
            head.plain = head.stored;
        memcpy(bytes + at, &head, sizeof(head));
    }
}

#endif
