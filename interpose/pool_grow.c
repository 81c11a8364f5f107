/* pool_grow: see pool_grow.h.
 *
 * The prices decide little between stitching and growing: per chunk of 2 MiB, unmapping and mapping again
 * costs about 45 us, creating and mapping a new one 46 us (measured, H200; facts in docs/decisions.md). So
 * what is held is used before more is taken, oldest free first, whose work is most likely done. New memory
 * comes in larger chunks for larger requests: a request is made of at most a few hundred, so that gigabytes
 * cost milliseconds, and small requests keep small chunks that stitch well.
 */
#include "capture.h"
#include "clock.h"
#include "pool_dead.h"
#include "pool_grow.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define SLACK_LEAST (UINT64_C(32) << 20) /* a small program need not wait for a few chunks */
#define TRIM_CHUNKS 32   /* 1 ms of the driver (measured, H200): so long may an allocation wait for a trim */
#define DEAD_MAX    4096 /* old places that wait to be unmapped before an allocation does it */
/* A request is at least so many times its chunk. With 16 the traces cost half the driver calls, at 0.971.
 * Behind several streams what is freed comes back later and in other company, and smaller ones are used
 * better. */
#define CHUNK_DIVISOR         64
#define CHUNK_DIVISOR_STREAMS 128
/* Where a large block was, later ones that stay each keep a whole chunk from moving. So chunks are no larger
 * than this, unless a request would need more than CHUNKS_MOST: such a one is a program's own arena, and is
 * kept. (Freed 8 GiB, then blocks of 20-60 MiB: utilization 0.854 with chunks of 128 MiB, 0.999 so.) */
#define CHUNK_LARGE (UINT64_C(16) << 20)
#define CHUNKS_MOST 1024
/* Of what is held, so much may be freed and not usable yet before a block that fits nowhere else well is
 * worth a join; and of a block, so much may be left over where it fits well. Fewer joins cost more moves than
 * they save (engine_replay; a join costs about 5 us, a moved chunk 67, on an H200). */
#define JOIN_PART 128
#define FIT_PART  8

_Atomic uint64_t pool_given_back;

uint64_t pool_mapped_end(const struct pool *pool)
{
    const struct range *last = pool->ranges.first;

    while (last->upper)
        last = last->upper;
    /* The address space never fills up, so the last range is the hole behind everything. */
    return last->start;
}

static uint64_t chunk_bytes(uint64_t request, uint64_t left)
{
    const uint64_t part = request / (fence_one_stream() ? CHUNK_DIVISOR : CHUNK_DIVISOR_STREAMS);
    const uint64_t large = request / CHUNKS_MOST > CHUNK_LARGE ? request / CHUNKS_MOST : CHUNK_LARGE;
    const uint64_t most = part < large ? part : large;
    uint64_t bytes = RANGES_PAGE;

    while (bytes * 2 <= most && bytes * 2 <= left)
        bytes *= 2;
    return bytes;
}

/* ---- whole free chunks ---- */

/* The next whole chunk of free bytes from `floor` to `*below`, which then is its beginning; false if there is
 * none. From high to low, so that what remains of a range stays in one piece. */
static bool next_chunk(const struct pool *pool, uint64_t floor, uint64_t *below, uint64_t *start,
                       uint64_t *bytes)
{
    uint64_t end = *below & ~(RANGES_PAGE - 1);

    while (end > floor && vmm_chunk_at(&pool->vmm, end - RANGES_PAGE, start, bytes)) {
        if (*start < floor)
            return false;
        end = *start;
        if (*start + *bytes <= *below) {
            *below = *start;
            return true;
        }
    }
    return false;
}

uint64_t pool_whole_bytes(struct pool *pool, uint64_t enough)
{
    uint64_t total = 0;

    for (struct range *f = pool->ranges.oldest; f && total < enough; f = f->newer) {
        uint64_t below = f->start + f->bytes, start, bytes;

        while (total < enough && next_chunk(pool, f->start, &below, &start, &bytes))
            total += bytes;
    }
    return total;
}

/* ---- chunks on the move ---- */

static int scratch_prepare(struct pool *pool, uint64_t count)
{
    uint64_t capacity = pool->chunk_capacity ? pool->chunk_capacity : 1024;

    if (count <= pool->chunk_capacity)
        return 0;
    while (capacity < count)
        capacity *= 2;
    struct vmm_chunk *chunks =
        mmap(NULL, capacity * sizeof *chunks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunks == MAP_FAILED)
        return -ENOMEM;
    if (pool->chunks)
        munmap(pool->chunks, pool->chunk_capacity * sizeof *pool->chunks);
    pool->chunks = chunks;
    pool->chunk_capacity = capacity;
    return 0;
}

/* What one attempt to make room works with. */
struct move {
    struct ranges_plan plan;
    uint64_t request;
    uint64_t reached; /* the epoch up to which work was done at the beginning */
    uint64_t movable; /* the epoch up to which chunks may move */
    uint64_t epoch;   /* of the latest free in what has been gathered */
    uint64_t held;    /* chunks taken from elsewhere: pool->chunks from the beginning */
    uint64_t fresh;   /* new chunks: pool->chunks from the end */
    uint64_t stuck;   /* of these, held ones first: mapped, and neither to be used nor unmapped */
};

/* From where up a free range is not part of the block to be. */
static uint64_t floor_of(const struct range *f, const struct move *move)
{
    const uint64_t end = move->plan.start + move->request;

    return f->start < end && move->plan.start < f->start + f->bytes ? end : f->start;
}

static struct vmm_chunk *fresh_at(const struct pool *pool, uint64_t i)
{
    return &pool->chunks[pool->chunk_capacity - 1 - i];
}

/* Bytes that could be gathered from whole free chunks; *later: of those that will be of use when their work
 * is done. */
static uint64_t gatherable(struct pool *pool, const struct move *move, uint64_t *later)
{
    const uint64_t target = move->plan.map_bytes;
    uint64_t total = 0;

    *later = 0;
    if (capture_any()) /* nothing is moved then */
        return 0;
    for (struct range *f = pool->ranges.oldest; f; f = f->newer) {
        uint64_t below = f->start + f->bytes, start, bytes;

        while (total < target && next_chunk(pool, floor_of(f, move), &below, &start, &bytes)) {
            if (f->epoch <= move->movable && bytes <= target - total)
                total += bytes;
            else if (f->epoch > move->reached)
                *later += bytes;
        }
        if (total == target)
            break;
    }
    return total;
}

/* Puts what was taken back where it was; what is new is released, unless it is stuck. */
static void undo(struct pool *pool, const struct move *move)
{
    uint64_t at = move->plan.map_start;

    for (uint64_t i = move->held; i-- > 0;)
        pool_revive(pool, &pool->chunks[i]);
    for (uint64_t i = 0; i < move->stuck; i++) {
        pool_stuck(pool, at, &pool->chunks[i], i >= move->held);
        at += pool->chunks[i].bytes;
    }
    for (uint64_t i = move->stuck > move->held ? move->stuck - move->held : 0; i < move->fresh; i++) {
        vmm_release(&pool->vmm, fresh_at(pool, i));
        pool->budget.give(pool->budget.owner, fresh_at(pool, i)->bytes);
    }
}

/* Takes whole free chunks, oldest first, until there are `bytes` of them. */
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
        while (bytes && next_chunk(pool, floor, &below, &start, &size)) {
            if (size > bytes)
                continue;
            if (ranges_prepare(&pool->ranges, 8))
                return -ENOMEM;
            pool->chunks[move->held++] = pool_retire(pool, start, epoch);
            move->epoch = epoch > move->epoch ? epoch : move->epoch;
            bytes -= size;
        }
    }
    return bytes ? -ENOMEM : 0;
}

/* Unmaps one whole free chunk whose work is done and gives it back. */
static int give_back(struct pool *pool, uint64_t start)
{
    struct vmm_chunk chunk;

    if (ranges_prepare(&pool->ranges, 8))
        return -ENOMEM;
    int rc = vmm_unmap(&pool->vmm, start, &chunk);
    if (rc)
        return rc;
    ranges_unmap(&pool->ranges, start, chunk.bytes);
    vmm_release(&pool->vmm, &chunk);
    pool->budget.give(pool->budget.owner, chunk.bytes);
    atomic_fetch_add(&pool_given_back, 1);
    return 0;
}

/* Creates new chunks until nothing is missing, each granted by the limit first. */
static int create(struct pool *pool, struct move *move, uint64_t *missing)
{
    while (*missing) {
        const uint64_t size = chunk_bytes(move->request, *missing);

        if (!pool->budget.take(pool->budget.owner, size))
            return -ENOMEM;
        int rc = vmm_create(&pool->vmm, size, fresh_at(pool, move->fresh));
        pool->budget.settle(pool->budget.owner, size, rc == 0);
        if (rc)
            return rc;
        if (pool->vmm.physical > pool->peak_physical)
            pool->peak_physical = pool->vmm.physical;
        move->fresh++;
        *missing -= size;
    }
    return 0;
}

/* Gives back one whole free chunk whose work is done. It was not gathered, so it is larger than what is
 * missing. */
static bool shed(struct pool *pool, const struct move *move)
{
    uint64_t start, size;

    for (struct range *f = capture_any() ? NULL : pool->ranges.oldest; f; f = f->newer) {
        uint64_t below = f->start + f->bytes;

        while (f->epoch <= move->reached && next_chunk(pool, floor_of(f, move), &below, &start, &size)) {
            if (!pool_left_behind(pool, start))
                return give_back(pool, start) == 0;
        }
    }
    return false;
}

/* Maps all of them side by side at the planned place. */
static int place(struct pool *pool, struct move *move)
{
    const uint64_t count = move->held + move->fresh;

    /* Each of them may get stuck. */
    if (ranges_prepare(&pool->ranges, 8 + (unsigned)count) || pool_dead_prepare(pool, count))
        return -ENOMEM;
    for (uint64_t i = 0; i < move->fresh; i++)
        pool->chunks[move->held + i] = *fresh_at(pool, i);
    int rc = vmm_map(&pool->vmm, move->plan.map_start, pool->chunks, count, &move->stuck);
    if (rc)
        return rc;
    ranges_map(&pool->ranges, move->plan.map_start, move->plan.map_bytes, move->epoch);
    pool->grows += move->fresh != 0;
    pool->stitches += move->held != 0;
    pool->stitched += move->held;
    return 0;
}

/* ---- the steps ---- */

bool pool_reclaim(struct pool *pool)
{
    bool any = false;

    while (pool->pending && pool->pending->epoch <= fence_usable(&pool->fence)) {
        struct range *range = pool->pending;
        const uint64_t epoch = range->epoch;

        pool->pending = range->newer;
        if (!pool->pending)
            pool->pending_last = NULL;
        pool->pending_bytes -= range->bytes;
        ranges_give(&pool->ranges, range, fence_done(&pool->fence, epoch) ? 0 : epoch);
        any = true;
    }
    return any;
}

/* With the lock. */
static bool any_waits(const struct pool *pool)
{
    return pool->pending || pool->small.pending_bytes;
}

void pool_take_in(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    const bool waits = any_waits(pool);
    if (waits) {
        fence_poll(&pool->fence);
        pool_reclaim(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    if (waits)
        small_reclaim(pool, NULL);
}

static bool join(struct pool *pool)
{
    if (!fence_join(&pool->fence))
        return false;
    pool->joins++;
    return pool_reclaim(pool);
}

static bool much_pending(const struct pool *pool)
{
    return pool->pending_bytes > pool->vmm.physical / JOIN_PART;
}

void pool_prefer_fit(struct pool *pool, uint64_t size)
{
    if (!much_pending(pool))
        return;
    const uint64_t best = ranges_best(&pool->ranges, size);
    if (best && best - size <= size / FIT_PART)
        return;
    fence_poll(&pool->fence);
    pool_reclaim(pool);
    if (much_pending(pool))
        join(pool);
}

/* More may be held than lives, up to the slack, before waiting is better than growing. */
static bool within_slack(const struct pool *pool, uint64_t more)
{
    const uint64_t live = pool_live_bytes(pool, cache_figures(pool).bytes);

    const uint64_t slack = live / 1000 * pool->slack_permille;

    return pool->vmm.physical + more <= live + (slack > SLACK_LEAST ? slack : SLACK_LEAST);
}

/* Waits for the oldest work that a free waits for, without the lock. *more: there is other such work. */
static int wait_for_work(struct pool *pool, bool *more)
{
    pthread_mutex_unlock(&pool->lock);
    int rc = fence_wait_oldest(&pool->fence, more);
    pthread_mutex_lock(&pool->lock);
    pool_cool_down(pool, 0);
    pool_reclaim(pool);
    return rc;
}

enum patience {
    RATHER_JOIN, /* than move chunks or take new ones */
    RATHER_WAIT, /* than hold more than the slack allows */
    RATHER_GROW,
    NO_WAIT
};

/* New memory first: if it is refused, nothing has been touched yet. */
static int assemble(struct pool *pool, struct move *move, uint64_t held, bool *refused)
{
    uint64_t missing = move->plan.map_bytes - held;
    int rc = create(pool, move, &missing);

    *refused = rc != 0;
    if (*refused && rc != -ENOMEM)
        return rc;
    /* What is to be given up must be gone from where it was before, or its memory stays. Before anything is
     * gathered: that may have to be taken back. */
    if (*refused && !capture_any())
        pool_bury(pool, move->reached, UINT64_MAX);
    const int gathered = gather(pool, move, held);
    if (gathered)
        return gathered;
    bool any = false;
    for (; rc == -ENOMEM && shed(pool, move); any = true)
        rc = create(pool, move, &missing);
    pool->trims += any;
    return rc ? rc : place(pool, move);
}

static bool fits(const struct pool *pool, uint64_t bytes)
{
    return bytes == 0 || !pool->budget.fits || pool->budget.fits(pool->budget.owner, bytes);
}

/* Whether what is missing can be had, if need be by giving up whole free chunks that are of no use here.
 * Asked first: else a request that cannot be met would fill the card up to its limit before it is refused. */
static bool can_be_met(struct pool *pool, uint64_t missing, uint64_t held)
{
    if (fits(pool, missing))
        return true;
    const uint64_t idle = pool_whole_bytes(pool, UINT64_MAX) - held;
    return idle && fits(pool, missing > idle ? missing - idle : 0);
}

bool pool_may_fit(const struct pool *pool, uint64_t size)
{
    const uint64_t freed = pool->ranges.free_bytes + pool->pending_bytes + pool->small.extent_bytes;

    return size <= freed || fits(pool, size - freed);
}

/* One attempt: -EAGAIN if joining the streams or waiting for work would help. */
static int attempt(struct pool *pool, uint64_t size, enum patience patience, struct range **out,
                   struct pool_effort *effort)
{
    const uint64_t reached = fence_reached(&pool->fence);
    struct move move = {.request = size,
                        .reached = reached,
                        .movable = fence_one_stream() ? UINT64_MAX : fence_usable(&pool->fence)};
    uint64_t later;
    bool refused;

    /* What is stuck counts as held and is of no use. */
    if ((pool->dead_count > DEAD_MAX || pool->stuck_bytes) && !capture_any())
        pool_bury(pool, reached, UINT64_MAX);
    if (!ranges_plan(&pool->ranges, size, &move.plan))
        return -ENOMEM;
    const uint64_t target = move.plan.map_bytes;
    /* Room for chunks from both ends and for all of them together. */
    if (scratch_prepare(pool, 2 * target / RANGES_PAGE))
        return -ENOMEM;
    const uint64_t held = gatherable(pool, &move, &later);
    const bool others = patience != NO_WAIT && (later || pool->pending_bytes);
    const bool roomy = held == target || within_slack(pool, target - held);
    const bool enough =
        later + pool->pending_bytes >= size; /* else streams would wait for each other in vain */
    if (others && ((patience == RATHER_JOIN && (enough || !roomy)) || (patience == RATHER_WAIT && !roomy)))
        return pool_may_fit(pool, size) ? -EAGAIN : -ENOMEM;
    if (!can_be_met(pool, target - held, held))
        return others && pool_may_fit(pool, size) ? -EAGAIN : -ENOMEM;
    int rc = assemble(pool, &move, held, &refused);
    if (rc) {
        undo(pool, &move);
        return refused && others ? -EAGAIN : rc;
    }
    *out = ranges_take_at(&pool->ranges, move.plan.start, size);
    effort->made = true;
    return 0;
}

/* Makes what has been freed usable: by order on the device if that is enough, else by waiting. Returns what
 * the next attempt should rather do. */
static enum patience make_usable(struct pool *pool, enum patience patience, struct pool_effort *effort)
{
    bool more;

    if (patience == RATHER_JOIN) {
        join(pool);
        return RATHER_WAIT;
    }
    const uint64_t began = clock_ns();
    pool->waits += !effort->waited;
    effort->waited = true;
    const int rc = wait_for_work(pool, &more);
    pool->wait_ns += clock_ns() - began;
    if (rc)
        return NO_WAIT;
    return more ? RATHER_WAIT : RATHER_GROW;
}

static int make_fit(struct pool *pool, uint64_t size, struct range **out, struct pool_effort *effort)
{
    enum patience patience = fence_one_stream() ? RATHER_WAIT : RATHER_JOIN;
    int rc;

    fence_poll(&pool->fence);
    if (pool_reclaim(pool) && (*out = ranges_take(&pool->ranges, size)))
        return 0;
    rc = attempt(pool, size, patience, out, effort);
    /* Others may take what has come free, and free it again behind new work: as long as there is something to
     * wait for, there is no reason to say no. */
    while (rc == -EAGAIN) {
        patience = make_usable(pool, patience, effort);
        if (ranges_prepare(&pool->ranges, 8))
            return -ENOMEM;
        if ((*out = ranges_take(&pool->ranges, size)))
            return 0;
        rc = attempt(pool, size, patience, out, effort);
    }
    return rc == 0 ? 0 : -ENOMEM;
}

int pool_make_fit(struct pool *pool, uint64_t size, struct range **out, struct pool_effort *effort)
{
    const uint64_t began = clock_ns();
    const int rc = make_fit(pool, size, out, effort);

    pool->room_ns += clock_ns() - began;
    return rc;
}

/* Gives back at most `bytes` and a little, in at most TRIM_CHUNKS chunks. With the lock. */
static uint64_t trim_some(struct pool *pool, uint64_t bytes)
{
    const uint64_t reached = fence_reached(&pool->fence);
    uint64_t given = 0;
    int chunks = 0;
    struct range *next;

    if (capture_any())
        return 0;
    /* Memory is the driver's again only when no old place holds it any more. */
    pool_bury(pool, reached, UINT64_MAX);
    for (struct range *f = pool->ranges.oldest; f && given < bytes; f = next) {
        uint64_t below = f->start + f->bytes, start, size;
        const uint64_t floor = f->start;

        next = f->newer;
        if (f->epoch > reached)
            continue;
        while (given < bytes && next_chunk(pool, floor, &below, &start, &size)) {
            if (pool_left_behind(pool, start))
                continue;
            if (chunks++ == TRIM_CHUNKS || give_back(pool, start))
                return given;
            given += size;
        }
    }
    return given;
}

uint64_t pool_trim(struct pool *pool, uint64_t bytes)
{
    uint64_t given = 0, some;

    small_trim(pool);
    pool_sweep(pool);
    do {
        pthread_mutex_lock(&pool->lock);
        fence_poll(&pool->fence);
        pool_cool_down(pool, 0);
        pool_reclaim(pool);
        some = trim_some(pool, bytes - given);
        given += some;
        pool->trims += some && given == some;
        pthread_mutex_unlock(&pool->lock);
    } while (some && given < bytes);
    return given;
}

bool pool_may_have(struct pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    const bool may_fit = pool_may_fit(pool, bytes);
    pthread_mutex_unlock(&pool->lock);
    return may_fit;
}

int pool_wait(struct pool *pool, bool *more)
{
    pthread_mutex_lock(&pool->lock);
    const bool any = any_waits(pool) || pool_whole_bytes(pool, 1);
    const int rc = any ? wait_for_work(pool, more) : -ENOENT;
    pthread_mutex_unlock(&pool->lock);
    return rc;
}
