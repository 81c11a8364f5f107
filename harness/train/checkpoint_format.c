/* Checks of the checkpoint file and its checksum. No device, no file: bytes only. */
#include "harness/train/checkpoint_format.h"

#include <string.h>

static const uint64_t sum_start = 0x243f6a8885a308d3u; /* digits of pi */
static const uint64_t sum_odd = 0x9e3779b97f4a7c15u;
static const uint64_t most_steps = UINT64_MAX / 4; /* far from where sums with it would wrap */
enum { WORD = 8 };

static void add_word(struct checkpoint_sum *sum, const uint8_t *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    sum->state = (sum->state ^ word) * sum_odd;
    sum->state ^= sum->state >> 29;
}

void checkpoint_sum_open(struct checkpoint_sum *sum)
{
    *sum = (struct checkpoint_sum){.state = sum_start};
}

void checkpoint_sum_add(struct checkpoint_sum *sum, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    while (count > 0 && (sum->count > 0 || count < WORD)) {
        sum->rest[sum->count++] = *at++;
        count--;
        if (sum->count == WORD) {
            add_word(sum, sum->rest);
            sum->count = 0;
        }
    }
    for (; count >= WORD; count -= WORD, at += WORD)
        add_word(sum, at);
    if (count > 0)
        memcpy(sum->rest, at, count);
    sum->count += count;
}

uint64_t checkpoint_sum_close(struct checkpoint_sum *sum)
{
    size_t count = sum->count;

    memset(sum->rest + count, 0, WORD - count);
    add_word(sum, sum->rest);
    return sum->state ^ count;
}

/* Returns true if the name, which is printed, has no character that steers a terminal. */
static bool is_plain(const char *name, size_t size)
{
    for (; size > 0 && *name; name++, size--) {
        if (*name < ' ' || *name > '~')
            return false;
    }
    return size > 0;
}

const char *checkpoint_check_header(const struct checkpoint_header *header, uint64_t file_bytes)
{
    uint64_t table = (uint64_t)header->param_count * sizeof(struct checkpoint_entry);

    if (memcmp(header->magic, CHECKPOINT_MAGIC, sizeof(header->magic)) != 0)
        return "it is not a checkpoint of train";
    if (header->version != CHECKPOINT_VERSION)
        return "it was written by another version of train";
    if (header->file_bytes != file_bytes)
        return file_bytes < header->file_bytes ? "it is truncated" : "it has bytes behind its end";
    if (!is_plain(header->name, sizeof(header->name)))
        return "its header is damaged (the model's name)";
    if (header->step > most_steps || header->micro > most_steps)
        return "its header is damaged (number of steps)";
    if (header->param_count == 0 || header->param_count > CHECKPOINT_MAX_PARAMS)
        return "its header is damaged (number of parameters)";
    if (sizeof(*header) + table > file_bytes)
        return "its header is damaged (the table is larger than the file)";
    return NULL;
}

/* Returns false if the entry cannot be, whatever the file's size. */
static bool can_be(const struct checkpoint_entry *entry)
{
    uint64_t elements = (uint64_t)entry->rows * entry->cols;

    switch (entry->form) {
    case CHECKPOINT_FLOATS:
        return elements > 0 && entry->copies >= 1 && entry->copies <= 3;
    case CHECKPOINT_INT8:
        return elements > 0 && entry->copies == 1;
    case CHECKPOINT_SPARSE:
        return elements > 0 && entry->copies <= elements;
    default:
        return false;
    }
}

const char *checkpoint_check_entries(const struct checkpoint_header *header,
                                     const struct checkpoint_entry *entries)
{
    uint64_t left = header->file_bytes - sizeof(*header) - header->param_count * sizeof(*entries);

    for (uint32_t i = 0; i < header->param_count; i++) {
        const struct checkpoint_entry *entry = &entries[i];
        uint64_t elements = (uint64_t)entry->rows * entry->cols;

        if (!can_be(entry))
            return "its table is damaged (an entry of no size or of an unknown form)";
        /* A weight takes a bit or more; so the sizes below do not overflow. */
        if (elements / 8 > left || checkpoint_entry_bytes(entry) > left)
            return "its table is damaged (more contents than the file has)";
        left -= checkpoint_entry_bytes(entry);
    }
    return left ? "its table is damaged (less contents than the file has)" : NULL;
}

bool checkpoint_is_small(const struct checkpoint_header *header, const struct checkpoint_entry *entries)
{
    bool small = false;

    for (uint32_t i = 0; i < header->param_count; i++)
        small |= entries[i].form != CHECKPOINT_FLOATS;
    return small;
}
