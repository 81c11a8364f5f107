/* recording_decode: reads a recording strictly: every fault ends the test. See recording_decode.h. */
#include "recording_decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if GPUCAP_HAVE_ZSTD
#include <zstd.h>
#endif

#define FIRST_NAME 64 /* types below are events */

static unsigned char *read_all(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    unsigned char *all = NULL;
    size_t room = 0;

    *bytes = 0;
    if (!file)
        return NULL;
    do {
        room = room ? 2 * room : 1 << 16;
        unsigned char *more = realloc(all, room);

        if (!more)
            abort();
        all = more;
        *bytes += fread(all + *bytes, 1, room - *bytes, file);
    } while (*bytes == room);
    fclose(file);
    return all;
}

static uint64_t checksum(const unsigned char *bytes, size_t count)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static bool unpack(struct recording_decode *out, const struct recording_block *block,
                   const unsigned char *stored)
{
    unsigned char *to;

    if (block->magic != RECORDING_BLOCK || block->plain > RECORDING_BLOCK_MAX ||
        checksum(stored, block->stored) != block->checksum)
        return false;
    unsigned char *more = realloc(out->records, out->bytes + block->plain);
    if (!more)
        abort();
    out->records = more;
    to = more + out->bytes;
    out->bytes += block->plain;
    out->blocks++;
    if (block->codec == RECORDING_PLAIN && block->plain == block->stored) {
        memcpy(to, stored, block->plain);
        return true;
    }
    out->packed++;
#if GPUCAP_HAVE_ZSTD
    return block->codec == RECORDING_ZSTD &&
           ZSTD_decompress(to, block->plain, stored, block->stored) == block->plain;
#else
    return false;
#endif
}

/* Checks that the records are whole. */
static bool check(const struct recording_decode *recording)
{
    for (size_t at = 0; at < recording->bytes;) {
        struct recording_record head;

        if (recording->bytes - at < sizeof(head))
            return false;
        memcpy(&head, recording->records + at, sizeof(head));
        const size_t least =
            head.type < FIRST_NAME ? sizeof(struct recording_event) : sizeof(struct recording_name);
        if (head.size % 8 || head.size < least || head.size > recording->bytes - at)
            return false;
        at += head.size;
    }
    return true;
}

bool recording_decode(struct recording_decode *out, const char *path, const char **why)
{
    size_t bytes, at;
    unsigned char *all = read_all(path, &bytes);

    *out = (struct recording_decode){.cut = false};
    *why = "it cannot be read";
    if (!all || bytes < sizeof(out->head)) {
        free(all);
        return false;
    }
    memcpy(&out->head, all, sizeof(out->head));
    *why = "it is not a recording";
    bool good = !memcmp(out->head.magic, RECORDING_MAGIC, sizeof(out->head.magic)) &&
                out->head.version == RECORDING_VERSION;
    for (at = out->head.head_bytes; good && at < bytes;) {
        struct recording_block block;

        if (bytes - at < sizeof(block))
            break;
        memcpy(&block, all + at, sizeof(block));
        if (bytes - at - sizeof(block) < block.stored)
            break;
        *why = "a block is damaged";
        good = unpack(out, &block, all + at + sizeof(block));
        at += sizeof(block) + block.stored;
    }
    out->cut = at < bytes;
    free(all);
    if (good && !check(out)) {
        *why = "a record is damaged";
        good = false;
    }
    if (!good)
        recording_decode_free(out);
    return good;
}

void recording_decode_free(struct recording_decode *recording)
{
    free(recording->records);
    recording->records = NULL;
    recording->bytes = 0;
}

const struct recording_event *recording_decode_next(const struct recording_decode *recording, size_t *at,
                                                    unsigned type)
{
    while (*at < recording->bytes) {
        const struct recording_record *head = (const void *)(recording->records + *at);

        *at += head->size;
        if (head->type < FIRST_NAME && (type == 0 || head->type == type))
            return (const struct recording_event *)head;
    }
    return NULL;
}

size_t recording_decode_count(const struct recording_decode *recording, unsigned type)
{
    size_t at = 0, count = 0;

    while (recording_decode_next(recording, &at, type))
        count++;
    return count;
}

static const struct recording_name *find(const struct recording_decode *recording, unsigned type, uint32_t id,
                                         size_t before)
{
    for (size_t at = 0; at < recording->bytes && at < before;) {
        const struct recording_name *name = (const void *)(recording->records + at);

        if (name->head.type == type && name->id == id)
            return name;
        at += name->head.size;
    }
    return NULL;
}

const char *recording_decode_name(const struct recording_decode *recording, unsigned type, uint32_t id,
                                  size_t before)
{
    const struct recording_name *name = find(recording, type, id, before);

    return name ? name->text : NULL;
}

const struct recording_stack *recording_decode_stack(const struct recording_decode *recording, uint32_t id)
{
    return (const void *)find(recording, RECORDING_STACK, id, SIZE_MAX);
}
