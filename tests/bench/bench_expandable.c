/* bench_expandable: estimates what PyTorch's cache with expandable segments would hold. See
 * bench_expandable.h. */
#include "bench_expandable.h"

#include <stdio.h>
#include <stdlib.h>

#define MIB   UINT64_C(0x100000)
#define UNIT  512
#define SMALL MIB

/* Blocks of a segment by address, without gaps, up to what is mapped. */
struct piece {
    struct piece *before, *after;
    uint64_t bytes;
    bool used;
};

struct segment {
    struct piece *first, *last;
    uint64_t page, mapped;
};

static struct piece *new_piece(uint64_t bytes)
{
    struct piece *piece = calloc(1, sizeof(*piece));

    if (!piece) {
        fputs("no memory for a segment\n", stderr);
        exit(1);
    }
    piece->bytes = bytes;
    return piece;
}

/* Behind `before`, or, with NULL, at the beginning. */
static void insert(struct segment *segment, struct piece *piece, struct piece *before)
{
    piece->before = before;
    piece->after = before ? before->after : segment->first;
    *(before ? &before->after : &segment->first) = piece;
    *(piece->after ? &piece->after->before : &segment->last) = piece;
}

static void take_out(struct segment *segment, struct piece *piece)
{
    *(piece->before ? &piece->before->after : &segment->first) = piece->after;
    *(piece->after ? &piece->after->before : &segment->last) = piece->before;
    free(piece);
}

/* The last piece, which can grow, counts as larger than all others, as in PyTorch's get_free_block. */
static struct piece *best_fit(const struct segment *segment, uint64_t bytes)
{
    struct piece *best = NULL;

    for (struct piece *piece = segment->first; piece; piece = piece->after) {
        if (piece->used || piece->bytes < bytes || (best && piece == segment->last))
            continue;
        if (!best || piece->bytes < best->bytes)
            best = piece;
    }
    return best;
}

/* Maps pages at the end until a free piece there is large enough. */
static struct piece *extend(struct segment *segment, uint64_t bytes)
{
    if (!segment->last || segment->last->used)
        insert(segment, new_piece(0), segment->last);
    const uint64_t missing = bytes - segment->last->bytes;
    const uint64_t pages = (missing + segment->page - 1) / segment->page;
    segment->last->bytes += pages * segment->page;
    segment->mapped += pages * segment->page;
    return segment->last;
}

static struct piece *take(struct segment *segment, uint64_t bytes)
{
    struct piece *piece = best_fit(segment, bytes);

    if (!piece)
        piece = extend(segment, bytes);
    if (piece->bytes > bytes) {
        insert(segment, new_piece(piece->bytes - bytes), piece);
        piece->bytes = bytes;
    }
    piece->used = true;
    return piece;
}

static void give(struct segment *segment, struct piece *piece)
{
    piece->used = false;
    if (piece->after && !piece->after->used) {
        piece->bytes += piece->after->bytes;
        take_out(segment, piece->after);
    }
    if (piece->before && !piece->before->used) {
        piece->before->bytes += piece->bytes;
        take_out(segment, piece);
    }
}

uint64_t expandable_held(const struct program *program)
{
    struct segment segments[] = {{.page = 2 * MIB}, {.page = 20 * MIB}};
    struct piece **pieces = calloc(program->ids + 1, sizeof(struct piece *));
    bool *large = calloc(program->ids + 1, sizeof(*large));

    if (!pieces || !large)
        return 0;
    for (uint64_t i = 0; i < program->count; i++) {
        const struct program_event *event = &program->events[i];

        if (event->bytes) {
            large[event->id] = event->bytes > SMALL;
            pieces[event->id] = take(&segments[large[event->id]], (event->bytes + UNIT - 1) / UNIT * UNIT);
        } else {
            give(&segments[large[event->id]], pieces[event->id]);
        }
    }
    for (int s = 0; s < 2; s++) {
        while (segments[s].first)
            take_out(&segments[s], segments[s].first);
    }
    free(pieces);
    free(large);
    return segments[0].mapped + segments[1].mapped;
}
