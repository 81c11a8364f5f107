/* graphs: see graphs.h. A sorted array: programs have a few hundred graphs, and look one up per launch. */
#include "interpose/account/graphs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/account/limit.h"
#include "interpose/base/clock.h"
#include "interpose/base/lock.h"
#include "interpose/base/sums.h"

#define CARDS_MAX 64
#define PATIENCE  UINT64_C(1000000000) /* ns; a launch takes microseconds unless the program delays it */

struct row {
    const void *exec;
    struct graphs_part part;
    bool launched;
    bool leaving;     /* graphs_destroy_end decides; a later graph of this handle is not */
    uintptr_t stream; /* of the last launch, as are the next two */
    uint64_t held;    /* held by the driver after it */
    uint64_t moves;   /* the card's moves at that time */
};

struct card {
    pthread_rwlock_t launches; /* held until the driver answers: shared for repeated launches */
    /* guarded by lock */
    uint64_t moves; /* times that memory may have moved from one graph to another */
    uint64_t left;  /* the most that destroyed graphs may still use */
};

_Atomic size_t graphs_known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct row *rows; /* graphs_known of them, by exec */
static size_t capacity;
static struct card all_cards[CARDS_MAX] = {
    [0 ... CARDS_MAX - 1] = {.launches = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP}};

/* ---- footprints ---- */

static int by_place(const void *a, const void *b)
{
    const struct graphs_range *x = a, *y = b;

    if (x->card != y->card)
        return x->card < y->card ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Returns the bytes of a range's pages at or above *end, and moves *end behind them. */
static uint64_t new_pages(const struct graphs_range *range, uint64_t *end)
{
    const uint64_t first = range->start & ~(LIMIT_PAGE - 1);
    const uint64_t last = limit_round(sums_add(range->start, range->bytes));

    if (range->bytes == 0)
        return 0;
    if (range->start == 0)
        return limit_round(range->bytes);
    if (last <= *end)
        return 0;
    const uint64_t bytes = last - (first > *end ? first : *end);
    *end = last;
    return bytes;
}

size_t graphs_footprint(struct graphs_range *ranges, size_t count, struct graphs_part parts[GRAPHS_CARDS])
{
    size_t cards = 0;
    uint64_t end = 0;

    if (count)
        qsort(ranges, count, sizeof(*ranges), by_place);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || ranges[i].card != ranges[i - 1].card) {
            if (cards == GRAPHS_CARDS)
                return GRAPHS_CARDS + 1;
            parts[cards++] = (struct graphs_part){.card = ranges[i].card};
            end = 0;
        }
        parts[cards - 1].bytes = sums_add(parts[cards - 1].bytes, new_pages(&ranges[i], &end));
    }
    return cards;
}

/* ---- the table ---- */

/* Returns the first row that does not come before this handle's. */
static size_t place_of(const void *exec)
{
    size_t low = 0, high = graphs_known;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if ((uintptr_t)rows[middle].exec < (uintptr_t)exec)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static size_t rows_of(const void *exec, size_t at)
{
    size_t count = 0;

    while (at + count < graphs_known && rows[at + count].exec == exec)
        count++;
    return count;
}

static struct card *card_of(const struct graphs_part *part)
{
    return &all_cards[(size_t)part->card % CARDS_MAX];
}

static bool make_room(size_t count)
{
    const size_t wanted = graphs_known + count;

    if (wanted <= capacity)
        return true;
    struct row *larger = realloc(rows, 2 * wanted * sizeof(*rows));
    if (!larger)
        return false;
    rows = larger;
    capacity = 2 * wanted;
    return true;
}

static void forget(const void *exec)
{
    const size_t at = place_of(exec), count = rows_of(exec, at);

    if (count == 0)
        return;
    /* A destroyed graph may still be running, or may have left blocks to the program. */
    for (size_t i = at; i < at + count; i++) {
        struct card *card = card_of(&rows[i].part);

        if (rows[i].launched)
            card->left = sums_add(card->left, rows[i].part.bytes);
    }
    memmove(&rows[at], &rows[at + count], (graphs_known - at - count) * sizeof(*rows));
    graphs_known -= count;
}

static void set_leaving(const void *exec, bool leaving)
{
    for (size_t i = place_of(exec); i < graphs_known && rows[i].exec == exec; i++)
        rows[i].leaving = leaving;
}

void graphs_destroy_begin(const void *exec)
{
    lock_mutex_take(&lock); /* not cancelled until graphs_destroy_end */
    set_leaving(exec, true);
    pthread_mutex_unlock(&lock);
}

void graphs_destroy_end(const void *exec, bool destroyed)
{
    pthread_mutex_lock(&lock);
    const size_t at = place_of(exec);
    if (!destroyed)
        set_leaving(exec, false);
    else if (rows_of(exec, at) && rows[at].leaving)
        forget(exec);
    lock_mutex_release(&lock);
}

int graphs_remember(const void *exec, const struct graphs_part *parts, size_t count)
{
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (count && !make_room(count))
        rc = -ENOMEM;
    else
        forget(exec);
    if (count && rc == 0) {
        const size_t at = place_of(exec);

        memmove(&rows[at + count], &rows[at], (graphs_known - at) * sizeof(*rows));
        for (size_t i = 0; i < count; i++)
            rows[at + i] = (struct row){.exec = exec, .part = parts[i]};
        graphs_known += count;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

size_t graphs_find(const void *exec, struct graphs_part parts[GRAPHS_CARDS])
{
    pthread_mutex_lock(&lock);
    const size_t at = place_of(exec), count = rows_of(exec, at);
    for (size_t i = 0; i < count; i++)
        parts[i] = rows[at + i].part;
    pthread_mutex_unlock(&lock);
    return count;
}

static struct row *row_of(const void *exec, int card)
{
    for (size_t i = place_of(exec); i < graphs_known && rows[i].exec == exec; i++) {
        if (rows[i].part.card == card)
            return &rows[i];
    }
    return NULL;
}

/* ---- launches ---- */

/* Returns true if the launch is on the last one's stream, and the driver holds no less than after that. */
static bool as_before(const struct row *row, const struct graphs_ask *ask, uint64_t held)
{
    return row && row->launched && row->stream == ask->stream && held >= row->held;
}

/* The same, and no memory has moved since. */
static bool is_sure(const struct graphs_ask *ask, uint64_t held)
{
    const struct row *row = row_of(ask->exec, ask->part.card);

    return as_before(row, ask, held) && row->moves == card_of(&ask->part)->moves;
}

bool graphs_again(struct graphs_ask *ask, uint64_t held)
{
    pthread_rwlock_t *launches = &card_of(&ask->part)->launches;
    const struct timespec until = clock_after(PATIENCE);

    if (pthread_rwlock_timedrdlock(launches, &until) != 0)
        return false;
    pthread_mutex_lock(&lock);
    ask->again = is_sure(ask, held);
    pthread_mutex_unlock(&lock);
    if (ask->again)
        lock_disable_cancel(); /* until graphs_end: the lock would stay taken */
    else
        pthread_rwlock_unlock(launches);
    return ask->again;
}

void graphs_alone(struct graphs_ask *ask)
{
    const struct timespec until = clock_after(PATIENCE);

    ask->alone = pthread_rwlock_timedwrlock(&card_of(&ask->part)->launches, &until) == 0;
    if (ask->alone)
        lock_disable_cancel(); /* until graphs_end */
}

void graphs_trimmed(const struct graphs_ask *ask)
{
    pthread_mutex_lock(&lock);
    card_of(&ask->part)->moves++;
    pthread_mutex_unlock(&lock);
}

/* Returns what the driver may take for this launch, whichever graphs share memory: at most the graph's own
 * bytes beyond the unused ones, and at most what all graphs together need. */
static uint64_t need_alone(const struct graphs_ask *ask, const struct graphs_pool *pool)
{
    struct card *card = card_of(&ask->part);
    uint64_t all = ask->part.bytes;

    card->left = sums_smaller(card->left, pool->used);
    for (size_t i = 0; i < graphs_known; i++) {
        if (rows[i].launched && rows[i].part.card == ask->part.card && rows[i].exec != ask->exec)
            all = sums_add(all, rows[i].part.bytes);
    }
    const uint64_t own = sums_minus(ask->part.bytes, sums_minus(pool->held, pool->used));
    const uint64_t together = sums_minus(sums_add(all, card->left), pool->held);
    return sums_smaller(own, together);
}

void graphs_need(struct graphs_ask *ask, const struct graphs_pool *pool)
{
    pthread_mutex_lock(&lock);
    ask->moved = !as_before(row_of(ask->exec, ask->part.card), ask, pool->held);
    if (!ask->alone)
        ask->need = limit_round_step(ask->part.bytes);
    else
        ask->need = is_sure(ask, pool->held) ? 0 : limit_round_step(need_alone(ask, pool));
    pthread_mutex_unlock(&lock);
}

static void remember_launch(const struct graphs_ask *ask, uint64_t held)
{
    struct card *card = card_of(&ask->part);

    pthread_mutex_lock(&lock);
    struct row *row = row_of(ask->exec, ask->part.card);
    card->moves += ask->moved;
    if (row) {
        row->launched = true;
        row->stream = ask->stream;
        row->held = held;
        row->moves = card->moves;
    }
    pthread_mutex_unlock(&lock);
}

void graphs_end(const struct graphs_ask *ask, bool success, uint64_t held)
{
    if (success && !ask->again)
        remember_launch(ask, held);
    if (!ask->again && !ask->alone)
        return;
    pthread_rwlock_unlock(&card_of(&ask->part)->launches);
    lock_restore_cancel();
}
