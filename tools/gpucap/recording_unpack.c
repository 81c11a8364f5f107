/* recording_unpack: see recording_unpack.h. */
#include "tools/gpucap/recording_unpack.h"

#include <string.h>

#if GPUCAP_HAVE_ZSTD
#include <zstd.h>
#endif

#define SLACK 4096 /* what a compressor may add to bytes that cannot be compressed */

bool recording_unpack_has_zstd(void)
{
    return GPUCAP_HAVE_ZSTD;
}

bool recording_block_is_possible(const struct recording_block *head)
{
    return head->magic == RECORDING_BLOCK && head->plain <= RECORDING_BLOCK_MAX &&
           head->stored <= RECORDING_BLOCK_MAX + SLACK;
}

#if GPUCAP_HAVE_ZSTD
static bool unpack_zstd(const struct recording_block *head, const unsigned char *stored, unsigned char *plain)
{
    return ZSTD_decompress(plain, head->plain, stored, head->stored) == head->plain;
}
#else
static bool unpack_zstd(const struct recording_block *head, const unsigned char *stored, unsigned char *plain)
{
    (void)head, (void)stored, (void)plain;
    return false;
}
#endif

enum recording_unpack recording_unpack(const struct recording_block *head, const unsigned char *stored,
                                       unsigned char *plain)
{
    if (recording_checksum(stored, head->stored) != head->checksum)
        return RECORDING_UNPACK_DAMAGED;
    switch (head->codec) {
    case RECORDING_PLAIN:
        if (head->stored != head->plain)
            return RECORDING_UNPACK_DAMAGED;
        memcpy(plain, stored, head->plain);
        return RECORDING_UNPACK_GOOD;
    case RECORDING_ZSTD:
        if (!recording_unpack_has_zstd())
            return RECORDING_UNPACK_FOREIGN;
        return unpack_zstd(head, stored, plain) ? RECORDING_UNPACK_GOOD : RECORDING_UNPACK_DAMAGED;
    default:
        return RECORDING_UNPACK_FOREIGN;
    }
}
