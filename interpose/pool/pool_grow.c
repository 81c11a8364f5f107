/* pool_grow: see pool_grow.h.
 *
 * The pool grows instead of moving chunks (has_room) if
 * - the limits leave room,
 * - it then holds no more than if it had never moved a chunk, and
 * - it stays within the slack above the peak of live bytes, or there is much room and moving is not worth it.
 * Moving a chunk costs 26 us on an idle H200 (map 1, access 25), 150 us in a training, and more if its old
 * place is unmapped later (pool_dead.h). It also leaves a gap that the next step may need.
 *
 * Whole free chunks move to where the request fits with the fewest bytes: next to a free range, if there is
 * one. Those that have been free longest move first, because their work is most likely done.
 */
#include "interpose/pool/pool_grow.h"

#include <errno.h>

#include "interpose/base/clock.h"
#include "interpose/pool/cache.h"
#include "interpose/pool/pool_chunks.h"
#include "interpose/pool/pool_dead.h"
#include "interpose/pool/pool_expose.h"
#include "interpose/pool/pool_figures.h"
#include "interpose/see/owner.h"

#define SLACK_LEAST (UINT64_C(32) << 20) /* a small program does not move chunks for a few megabytes */
/* The least slack where much room is left: moving chunks for less is not worth the gaps that it leaves. (6 to
 * 10 %: 2 to 3 of 168 generated programs cost more than 1 %, 4 %: 8.) */
#define ROOMY_PERMILLE 80
#define ROOM_PART      16 /* a pool that could not grow by this part of what it holds counts as near the limit */
/* With much room a pool moves chunks only if it then holds less than without moves, by this part: moves that
 * save little make others necessary that save nothing. (docs/decisions/095) */
#define SAVING_PART 100
/* With much room each moved chunk must be paid for by so many bytes of requests: the median of eleven
 * recorded programs requests them in 24 ms, and mapping a chunk again takes 150 us in a training (H200,
 * docs/decisions/107). Bytes, because the time in which a program does something else, such as loading its
 * data, pays for nothing. */
#define MOVE_PRICE UINT64_C(6000000000)
/* Chunks are small where little room is left: a partly used chunk cannot move, and each wastes about half of
 * itself. The room left must be worth at least this many chunks: 2 MiB chunks below 16 GiB of room, 8 MiB
 * from 32 GiB on. (Smallest capacity of five traces: 1.003-1.019 of peak live with 2 MiB. Moves cost an
 * unlimited program 0.1-0.6 % of its time with 8 MiB, 1-4 % with 2 MiB, at utilizations of 0.93-0.99.) */
#define ROOM_CHUNKS 4096
/* With room, usual chunks have this size, or this part of what the pool holds if that is more. A chunk costs
 * 36 us on an idle H200 and 200 us in a training that grows, whatever its size (docs/decisions/104). */
#define CHUNK_MOST (UINT64_C(8) << 20)
#define HELD_PART  100
/* With room for chunks of CHUNK_MOST, those of a large request are this part of it: what one wastes is little
 * beside the block. */
#define REQUEST_PART 6
/* A request of this size is most likely a program's own arena, which it keeps: make it of a few large chunks,
 * so that its first allocation costs little more than a native one. pool_split.c splits them for other
 * blocks. */
#define ARENA_LEAST  (UINT64_C(512) << 20)
#define ARENA_CHUNKS 4

/* ---- one attempt ---- */

/* The state of one attempt to make room. pool->chunks holds moved chunks from the beginning and new ones from
 * the end. */
struct move {
    enum ranges_zone zone;
    struct ranges_plan plan;
    uint64_t request;
    uint64_t room;    /* how much more the limits allow */
    uint64_t reached; /* fence_reached at the beginning */
    uint64_t movable; /* newest epoch whose chunks may move */
    uint64_t epoch;   /* newest epoch among the gathered chunks */
    uint64_t moved;   /* chunks taken from elsewhere */
    uint64_t fresh;   /* new chunks */
    uint64_t stuck;   /* of these, moved ones first: mapped, but can be neither used nor unmapped */
};

static struct vmm_chunk *fresh_at(const struct pool *pool, uint64_t i)
{
    return &pool->chunks[pool->chunk_capacity - 1 - i];
}

/* Returns the lowest address of a free range that is not part of the planned block. */
static uint64_t floor_of(const struct range *f, const struct move *move)
{
    const uint64_t end = move->plan.start + move->request;

    return f->start < end && move->plan.start < f->start + f->bytes ? end : f->start;
}

/* Whole free chunks that could be gathered for a request. */
struct gatherable {
    uint64_t bytes, chunks; /* now */
    uint64_t later;         /* bytes of those that can be used once their work is done */
};

static struct gatherable gatherable(struct pool *pool, const struct move *move)
{
    const uint64_t target = move->plan.map_bytes;
    struct gatherable found = {.bytes = 0};

    for (struct range *f = pool->ranges.oldest; f && found.bytes < target; f = f->newer) {
        uint64_t below = f->start + f->bytes, start, bytes;

        while (found.bytes < target && pool_next_chunk(pool, floor_of(f, move), &below, &start, &bytes)) {
            if (f->epoch <= move->movable && bytes <= target - found.bytes) {
                found.bytes += bytes;
                found.chunks++;
            } else if (f->epoch > move->reached) {
                found.later += bytes;
            }
        }
    }
    return found;
}

/* Retires whole free chunks, oldest first, until there are `bytes` of them. */
static int gather(struct pool *pool, struct move *move, uint64_t bytes)
{
    struct range *next;

    if (pool_dead_prepare(pool, bytes / RANGES_PAGE))
        return -ENOMEM;
    for (struct range *f = pool->ranges.oldest; f && bytes; f = next) {
        uint64_t below = f->start + f->bytes, start, size;
        const uint64_t floor = floor_of(f, move), epoch = f->epoch;

        next = f->newer;
        if (epoch > move->movable)
            continue;
        while (bytes && pool_next_chunk(pool, floor, &below, &start, &size)) {
            if (size > bytes)
                continue;
            if (ranges_prepare(&pool->ranges, 8))
                return -ENOMEM;
            pool->chunks[move->moved++] = pool_retire(pool, start, epoch);
            move->epoch = epoch > move->epoch ? epoch : move->epoch;
            bytes -= size;
        }
    }
    return bytes ? -ENOMEM : 0;
}

static uint64_t room_of(const struct pool *pool)
{
    return pool->budget.room ? pool->budget.room(pool->budget.owner) : UINT64_MAX;
}

static uint64_t usual_chunk(const struct pool *pool, uint64_t room)
{
    const uint64_t part = pool->vmm.physical / HELD_PART, most = part > CHUNK_MOST ? part : CHUNK_MOST;
    uint64_t bytes = RANGES_PAGE;

    while (2 * bytes <= most && 2 * bytes <= room / ROOM_CHUNKS)
        bytes *= 2;
    return bytes;
}

uint64_t pool_usual_chunk(const struct pool *pool)
{
    return usual_chunk(pool, room_of(pool));
}

static uint64_t page_up(uint64_t bytes)
{
    return (bytes + RANGES_PAGE - 1) & ~(RANGES_PAGE - 1);
}

/* Returns the size of the largest chunks for a request. */
static uint64_t largest_chunk(const struct pool *pool, const struct move *move)
{
    const uint64_t usual = usual_chunk(pool, move->room), part = page_up(move->request / REQUEST_PART);

    if (move->zone == RANGES_SMALL) /* one small block may keep a whole chunk, so use the smallest */
        return RANGES_PAGE;
    if (move->request >= ARENA_LEAST)
        return move->request / ARENA_CHUNKS;
    return usual >= CHUNK_MOST && part > usual ? part : usual;
}

/* Returns the size of the next new chunk. All are of about one size, which makes the fewest. Only an arena's
 * are powers of two: it may be made near a limit, and then a chunk that moves must not be larger than what is
 * missing elsewhere. (With even ones 21 instead of 1 of 600 random programs were refused a request for which
 * there was memory.) */
static uint64_t chunk_bytes(const struct pool *pool, const struct move *move, uint64_t missing)
{
    const uint64_t most = largest_chunk(pool, move), count = (missing + most - 1) / most;
    uint64_t bytes = RANGES_PAGE;

    if (move->request < ARENA_LEAST)
        return page_up(missing / count);
    while (2 * bytes <= most && 2 * bytes <= missing)
        bytes *= 2;
    return bytes;
}

/* Creates new chunks until nothing is missing. */
static int create(struct pool *pool, struct move *move, uint64_t *missing)
{
    while (*missing) {
        const uint64_t bytes = chunk_bytes(pool, move, *missing);
        const int rc = pool_create_chunk(pool, bytes, fresh_at(pool, move->fresh));

        if (rc)
            return rc;
        move->fresh++;
        *missing -= bytes;
    }
    return 0;
}

/* Releases one whole free chunk whose work is done. It was not gathered because it is larger than what is
 * missing. */
static bool shed(struct pool *pool, const struct move *move)
{
    uint64_t start, size;

    for (struct range *f = pool->ranges.oldest; f; f = f->newer) {
        uint64_t below = f->start + f->bytes;

        while (f->epoch <= move->reached && pool_next_chunk(pool, floor_of(f, move), &below, &start, &size)) {
            if (pool_unmap_dead_of(pool, start, move->reached))
                return pool_give_back(pool, start) == 0;
        }
    }
    return false;
}

static void note_stitch(const struct pool *pool, const struct move *move)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < move->moved; i++)
        bytes += pool->chunks[i].bytes;
    if (move->moved)
        events_note(&(struct recording_event){.head.type = RECORDING_STITCH,
                                              .device = (uint16_t)pool->ordinal,
                                              .address = move->plan.start,
                                              .bytes = bytes,
                                              .other = move->moved,
                                              .owner = owner_current});
}

/* Maps the moved and new chunks side by side at the planned place. */
static int place(struct pool *pool, struct move *move)
{
    const uint64_t count = move->moved + move->fresh;

    /* Each chunk may get stuck. */
    if (ranges_prepare(&pool->ranges, 8 + (unsigned)count) || pool_dead_prepare(pool, count))
        return -ENOMEM;
    for (uint64_t i = 0; i < move->fresh; i++)
        pool->chunks[move->moved + i] = *fresh_at(pool, i);
    const int rc = vmm_map(&pool->vmm, move->plan.map_start, pool->chunks, count, &move->stuck);
    if (rc)
        return rc;
    ranges_map(&pool->ranges, move->plan.map_start, move->plan.map_bytes, move->epoch);
    pool->grows += move->fresh != 0;
    pool->stitches += move->moved != 0;
    pool->stitched += move->moved;
    if (events_are_on())
        note_stitch(pool, move);
    return 0;
}

/* Undoes an attempt: revives moved chunks and releases new ones, unless they are stuck. */
static void undo(struct pool *pool, const struct move *move)
{
    uint64_t at = move->plan.map_start;

    for (uint64_t i = move->moved; i-- > 0;)
        pool_revive(pool, &pool->chunks[i]);
    for (uint64_t i = 0; i < move->stuck; i++) {
        pool_stuck(pool, at, &pool->chunks[i], i >= move->moved);
        at += pool->chunks[i].bytes;
    }
    for (uint64_t i = move->stuck > move->moved ? move->stuck - move->moved : 0; i < move->fresh; i++)
        pool_release_chunk(pool, fresh_at(pool, i));
}

/* Creates new chunks first: if that is refused, nothing has been changed yet. */
static int assemble(struct pool *pool, struct move *move, uint64_t moved, bool *refused)
{
    uint64_t missing = move->plan.map_bytes - moved;
    int rc = create(pool, move, &missing);

    *refused = rc != 0;
    if (*refused && rc != -ENOMEM)
        return rc;
    const int gathered = gather(pool, move, moved);
    if (gathered)
        return gathered;
    bool any = false;
    for (; rc == -ENOMEM && shed(pool, move); any = true)
        rc = create(pool, move, &missing);
    pool->trims += any;
    return rc ? rc : place(pool, move);
}

/* ---- what may be held ---- */

static bool fits(const struct pool *pool, uint64_t bytes)
{
    return bytes == 0 || !pool->budget.fits || pool->budget.fits(pool->budget.owner, bytes);
}

/* Returns true if the pool may hold `more` without exceeding the slack above the peak of live bytes. */
static bool within_slack(const struct pool *pool, uint64_t size, uint64_t more)
{
    const uint64_t live = pool_live_bytes(pool) + size;
    const uint64_t peak = live > pool->recent_peak ? live : pool->recent_peak;
    const uint32_t least = pool->ranges.roomy ? ROOMY_PERMILLE : 0;
    const uint64_t slack = peak / 1000 * (pool->slack_permille > least ? pool->slack_permille : least);

    return pool->vmm.physical + more <= peak + (slack > SLACK_LEAST ? slack : SLACK_LEAST);
}

/* Returns true if moving chunks for a request is worth it, where much room is left: the pool then holds much
 * less than `unmoved`, which it would hold without moves, and requests have paid for all moves. */
static bool is_worth_moving(struct pool *pool, const struct move *move, uint64_t unmoved)
{
    return unmoved >= pool->vmm.physical + pool->vmm.physical / SAVING_PART &&
           (pool->stitched + gatherable(pool, move).chunks) * MOVE_PRICE <= pool->requested;
}

/* Returns true if the pool should grow instead of moving chunks. */
static bool has_room(struct pool *pool, const struct move *move)
{
    const uint64_t more = move->plan.map_bytes;

    if (more > move->room || move->room - more < pool->vmm.physical / ROOM_PART)
        return false;
    const uint64_t unmoved = ranges_unmoved(&pool->ranges, move->zone, move->request);
    return pool->vmm.physical + more <= unmoved &&
           (within_slack(pool, move->request, more) ||
            (pool->ranges.roomy && !is_worth_moving(pool, move, unmoved)));
}

/* Returns true if the missing bytes can be granted, if need be after releasing whole free chunks that are of
 * no use here. Checked first, so that a request that cannot be met does not fill the card up to its limit
 * before it is refused. */
static bool can_be_met(struct pool *pool, uint64_t missing, uint64_t moved)
{
    if (fits(pool, missing))
        return true;
    const uint64_t idle = pool_whole_bytes(pool, UINT64_MAX) - moved;
    return idle && fits(pool, missing > idle ? missing - idle : 0);
}

bool pool_may_fit(const struct pool *pool, uint64_t size)
{
    const uint64_t freed = pool->ranges.free_bytes + pool->pending_bytes + pool->small.extent_bytes;

    return size <= freed || fits(pool, size - freed);
}

/* ---- the steps ---- */

/* What an attempt prefers to other steps. */
enum patience {
    RATHER_JOIN, /* join streams rather than move chunks or take new ones */
    RATHER_WAIT, /* wait rather than hold more than the slack allows */
    RATHER_GROW,
    NO_WAIT
};

/* Makes one attempt. Returns 0, -EAGAIN if joining the streams or waiting for work would help, or another
 * -errno. */
static int attempt(struct pool *pool, enum ranges_zone zone, uint64_t size, enum patience patience,
                   struct range **out, struct pool_effort *effort)
{
    struct move move = {
        .zone = zone, .request = size, .room = room_of(pool), .reached = fence_reached(&pool->fence)};
    struct gatherable found = {.bytes = 0};
    bool refused;

    move.movable = streams_in_order() ? UINT64_MAX : fence_usable(&pool->fence);
    pool_release_left(pool);
    pool_expose_sweep(pool);
    pool_unmap_dead(pool, move.reached);
    if (!ranges_plan(&pool->ranges, zone, size, &move.plan))
        return -ENOMEM;
    const uint64_t target = move.plan.map_bytes;
    /* Scratch for chunks from both ends and for all of them together. */
    if (!pool_scratch(pool, 2 * target / RANGES_PAGE))
        return -ENOMEM;
    pool->ranges.roomy = pool->unmoved.roomy = usual_chunk(pool, move.room) > RANGES_PAGE;
    const bool grow = has_room(pool, &move);
    if (!grow)
        found = gatherable(pool, &move);
    const uint64_t moved = found.bytes;
    const bool others = patience != NO_WAIT && (found.later || pool->pending_bytes);
    const bool in_slack = grow || moved == target || within_slack(pool, size, target - moved);
    const bool enough = found.later + pool->pending_bytes >= size; /* otherwise a join would not help */
    if (others &&
        ((patience == RATHER_JOIN && (enough || !in_slack)) || (patience == RATHER_WAIT && !in_slack)))
        return pool_may_fit(pool, size) ? -EAGAIN : -ENOMEM;
    if (!can_be_met(pool, target - moved, moved))
        return others && pool_may_fit(pool, size) ? -EAGAIN : -ENOMEM;
    const int rc = assemble(pool, &move, moved, &refused);
    if (rc) {
        undo(pool, &move);
        return refused && others ? -EAGAIN : rc;
    }
    *out = ranges_take_at(&pool->ranges, move.plan.start, size);
    effort->made = true;
    return 0;
}

/* Makes freed memory usable, by a join if that is enough, else by waiting. Returns what the next attempt
 * should prefer. */
static enum patience make_usable(struct pool *pool, enum patience patience, struct pool_effort *effort)
{
    bool more;

    if (patience == RATHER_JOIN) {
        pool_join(pool);
        return RATHER_WAIT;
    }
    if (pool_wait_counted(pool, effort, &more))
        return NO_WAIT;
    return more ? RATHER_WAIT : RATHER_GROW;
}

static int make_fit(struct pool *pool, enum ranges_zone zone, uint64_t size, bool wait, struct range **out,
                    struct pool_effort *effort)
{
    enum patience patience = !wait ? NO_WAIT : streams_in_order() ? RATHER_WAIT : RATHER_JOIN;
    int rc;

    fence_poll(&pool->fence);
    if (pool_reclaim(pool) && (*out = ranges_take(&pool->ranges, zone, size)))
        return 0;
    rc = attempt(pool, zone, size, patience, out, effort);
    /* Other threads may take the memory that became usable and free it again behind new work. Go on as long
     * as there is work to wait for. */
    while (rc == -EAGAIN) {
        patience = make_usable(pool, patience, effort);
        if (ranges_prepare(&pool->ranges, 8))
            return -ENOMEM;
        if ((*out = ranges_take(&pool->ranges, zone, size)))
            return 0;
        rc = attempt(pool, zone, size, patience, out, effort);
    }
    return rc == 0 ? 0 : -ENOMEM;
}

/* Returns true if a block needs less memory in the other zone, beside a free part of a chunk. */
static bool needs_less(const struct pool *pool, enum ranges_zone other, enum ranges_zone own, uint64_t size)
{
    struct ranges_plan there, here;

    return ranges_plan(&pool->ranges, other, size, &there) &&
           (!ranges_plan(&pool->ranges, own, size, &here) || there.map_bytes < here.map_bytes);
}

int pool_make_fit(struct pool *pool, enum ranges_zone zone, uint64_t size, bool wait, struct range **out,
                  struct pool_effort *effort)
{
    const enum ranges_zone other = zone == RANGES_SMALL ? RANGES_LARGE : RANGES_SMALL;
    const uint64_t began = clock_ns();
    int rc = make_fit(pool, zone, size, wait, out, effort);

    /* Use the other zone rather than fail. */
    if (rc && (*out = ranges_take(&pool->ranges, other, size)))
        rc = 0;
    else if (rc && needs_less(pool, other, zone, size) && ranges_prepare(&pool->ranges, 8) == 0)
        rc = make_fit(pool, other, size, false, out, effort);
    pool->room_ns += clock_ns() - began;
    if (effort->wait_ns)
        owner_note_bytes(RECORDING_WAIT, pool->ordinal, size, effort->wait_ns);
    effort->wait_ns = 0;
    return rc;
}

struct range *pool_take_aligned(struct pool *pool, uint64_t bytes, struct pool_effort *effort)
{
    struct ranges *ranges = &pool->ranges;
    struct range *range;

    if (ranges_prepare(ranges, 8))
        return NULL;
    range = ranges_take_aligned(ranges, RANGES_SMALL, bytes, bytes);
    if (!range && cache_empty(pool, 0))
        range = ranges_take_aligned(ranges, RANGES_SMALL, bytes, bytes);
    if (range || pool_make_fit(pool, RANGES_SMALL, 2 * bytes - RANGES_UNIT, false, &range, effort))
        return range;
    /* The range has room for it wherever the range begins, so this fits. */
    const enum ranges_zone zone = range->start < ranges->border ? RANGES_SMALL : RANGES_LARGE;
    const bool prepared = ranges_prepare(ranges, 8) == 0;
    ranges_give(ranges, range, range->epoch);
    return prepared ? ranges_take_aligned(ranges, zone, bytes, bytes) : NULL;
}
