/* recording_make: writes recordings for tests. See recording_make.h. */
#include "recording_make.h"

#include "tools/gpucap/recording_unpack.h"

#include <stdlib.h>
#include <string.h>

#if GPUCAP_HAVE_ZSTD
#include <zstd.h>
#endif

static void *need(void *pointer)
{
    if (!pointer) {
        perror("recording_make");
        exit(2);
    }
    return pointer;
}

bool recording_make_open(struct recording_make *make, const char *path, struct recording_head head, int codec)
{
    if (codec == RECORDING_ZSTD && !recording_unpack_has_zstd())
        return false;
    memset(make, 0, sizeof(*make));
    make->codec = codec;
    make->block = need(malloc(RECORDING_BLOCK_MAX));
    make->file = need(fopen(path, "we"));
    memcpy(head.magic, RECORDING_MAGIC, sizeof(head.magic));
    head.version = RECORDING_VERSION;
    head.head_bytes = sizeof(head);
    fwrite(&head, sizeof(head), 1, make->file);
    return true;
}

/* Ends a block. */
static void flush(struct recording_make *make)
{
    struct recording_block head = {.magic = RECORDING_BLOCK,
                                   .codec = (uint32_t)make->codec,
                                   .stored = make->block_bytes,
                                   .plain = make->block_bytes};
    const unsigned char *stored = make->block;

    if (!make->block_bytes)
        return;
#if GPUCAP_HAVE_ZSTD
    const size_t room = ZSTD_compressBound(make->block_bytes);
    unsigned char *packed = need(malloc(room));
    if (make->codec == RECORDING_ZSTD) {
        head.stored = (uint32_t)ZSTD_compress(packed, room, make->block, make->block_bytes, 1);
        stored = packed;
    }
#endif
    head.checksum = recording_checksum(stored, head.stored);
    fwrite(&head, sizeof(head), 1, make->file);
    fwrite(stored, head.stored, 1, make->file);
#if GPUCAP_HAVE_ZSTD
    free(packed);
#endif
    make->block_bytes = 0;
}

/* Where the next record of `bytes` goes, zeroed. */
static unsigned char *add_record(struct recording_make *make, uint16_t type, size_t bytes)
{
    const struct recording_record record = {type, (uint16_t)((bytes + 7) / 8 * 8)};

    if (make->block_bytes + record.size > RECORDING_BLOCK_MAX / 8)
        flush(make);
    unsigned char *to = make->block + make->block_bytes;
    memset(to, 0, record.size);
    memcpy(to, &record, sizeof(record));
    make->block_bytes += record.size;
    return to;
}

void recording_make_event(struct recording_make *make, uint16_t type, struct recording_event event)
{
    unsigned char *to = add_record(make, type, sizeof(event));

    memcpy(&event.head, to, sizeof(event.head));
    memcpy(to, &event, sizeof(event));
    make->events++;
}

void recording_make_name(struct recording_make *make, uint16_t type, uint32_t id, const char *text,
                         size_t bytes)
{
    unsigned char *to = add_record(make, type, sizeof(struct recording_name) + bytes + 1);

    memcpy(to + offsetof(struct recording_name, id), &id, sizeof(id));
    memcpy(to + sizeof(struct recording_name), text, bytes);
}

void recording_make_stack(struct recording_make *make, uint32_t id, const uint64_t *frames, uint32_t count)
{
    unsigned char *to =
        add_record(make, RECORDING_STACK, sizeof(struct recording_stack) + count * sizeof(*frames));

    memcpy(to + offsetof(struct recording_stack, id), &id, sizeof(id));
    memcpy(to + sizeof(struct recording_stack), frames, count * sizeof(*frames));
}

void recording_make_close(struct recording_make *make, uint64_t time_ns, bool ended)
{
    if (ended)
        recording_make_event(make, RECORDING_END, (struct recording_event){.time_ns = time_ns});
    flush(make);
    if (fclose(make->file)) {
        perror("recording_make");
        exit(2);
    }
    free(make->block);
    memset(make, 0, sizeof(*make));
}
