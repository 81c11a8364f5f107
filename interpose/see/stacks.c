/* stacks: see stacks.h. */
#include "interpose/see/stacks.h"

#include <pthread.h>
#include <stdatomic.h>

#include "interpose/base/lock.h"
#include "interpose/base/pages.h"

#define PLACES       (4 * STACKS_MAX) /* of the table by hash; a power of two */
#define START_WINDOW 96 /* words above owner_enter in which the caller's frame pointer is saved */
#define STARTS       1024
#define NUMBER_BITS  16
_Static_assert(STACKS_MAX < 1 << NUMBER_BITS, "a stack's number fits into the table");

struct kept {
    uint64_t frames[STACKS_FRAMES]; /* 0 behind the last */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t table[PLACES]; /* upper bits of the hash, and the stack's number; 0: empty */
static struct kept *kept;              /* STACKS_MAX + 1; written under lock before `count` includes it */
static atomic_uint count;

/* By call: in which word the first frame pointer is saved; START_WINDOW: none was found. */
static _Atomic uint64_t starts[STARTS];

/* ---- walking ---- */

struct walk {
    struct stack stack;
    bool (*is_return)(uint64_t word);
};

/* Returns the index of the word at an address of the stack, or 0. */
static size_t index_of(const struct walk *walk, uint64_t address)
{
    const uint64_t base = (uint64_t)(uintptr_t)walk->stack.words, offset = address - base;

    return address % sizeof(uint64_t) == 0 && offset / sizeof(uint64_t) + 1 < walk->stack.count
               ? offset / sizeof(uint64_t)
               : 0;
}

/* Returns the index of the frame that a saved frame pointer at `index` leads to: further up, and with a
 * return address behind it. 0 if it is none. */
static size_t frame_from(const struct walk *walk, size_t index)
{
    const size_t frame = index_of(walk, stack_word(walk->stack, index));

    return frame > index && walk->is_return(stack_word(walk->stack, frame + 1)) ? frame : 0;
}

/* Finds the frame of the first function that keeps a frame pointer. The hook, and a library without frame
 * pointers above it, have saved the register somewhere between: in the same place for the same call. */
static size_t first_frame(const struct walk *walk, uint64_t call)
{
    _Atomic uint64_t *start = &starts[call * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (STARTS - 1)];
    const uint64_t word = atomic_load_explicit(start, memory_order_relaxed);
    const size_t index = word & ((1u << NUMBER_BITS) - 1);
    const bool known = word >> NUMBER_BITS == call;
    size_t frame = known && index < START_WINDOW ? frame_from(walk, index) : 0, i = 0;

    if (frame || (known && index == START_WINDOW))
        return frame;
    while (i < START_WINDOW && !(frame = frame_from(walk, i)))
        i++;
    if (!known && call >> (64 - NUMBER_BITS) == 0)
        atomic_store_explicit(start, call << NUMBER_BITS | i, memory_order_relaxed);
    return frame;
}

static size_t walk_up(const struct walk *walk, uint64_t return_address, uint64_t caller,
                      uint64_t frames[STACKS_FRAMES])
{
    size_t found = 1;

    frames[0] = return_address;
    if (caller)
        frames[found++] = caller;
    const size_t known = found;
    for (size_t frame = first_frame(walk, caller ? caller : return_address); frame && found < STACKS_FRAMES;
         frame = frame_from(walk, frame)) {
        const uint64_t word = stack_word(walk->stack, frame + 1);

        /* a library with frame pointers is walked through again */
        if (word != frames[found - 1] && !(found == known && word == return_address))
            frames[found++] = word;
    }
    return found;
}

/* ---- keeping ---- */

static uint64_t hash_of(const uint64_t *frames, size_t found)
{
    uint64_t hash = found;

    for (size_t i = 0; i < found; i++)
        hash = (hash ^ frames[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ hash >> 29;
    return (hash ^ hash >> 32) | UINT64_C(1) << 63; /* never 0 */
}

/* Returns the place of a hash, or an empty one. */
static _Atomic uint64_t *find(uint64_t hash, uint64_t *word)
{
    uint64_t i = hash & (PLACES - 1);

    while ((*word = atomic_load_explicit(&table[i], memory_order_acquire)) && (*word ^ hash) >> NUMBER_BITS)
        i = (i + 1) & (PLACES - 1);
    return &table[i];
}

/* With the lock held. */
static uint32_t add(uint64_t hash, const uint64_t *frames, size_t found)
{
    uint64_t word;
    _Atomic uint64_t *place = find(hash, &word);
    const unsigned number = atomic_load(&count) + 1;

    if (word)
        return (uint32_t)(word & ((1u << NUMBER_BITS) - 1));
    if (!kept)
        kept = pages_map_sparse((STACKS_MAX + 1) * sizeof(*kept));
    if (!kept || number > STACKS_MAX)
        return 0;
    memcpy(kept[number].frames, frames, found * sizeof(*frames));
    atomic_store_explicit(&count, number, memory_order_release);
    atomic_store_explicit(place, (hash >> NUMBER_BITS) << NUMBER_BITS | number, memory_order_release);
    return number;
}

uint32_t stacks_take(struct stack stack, uint64_t return_address, uint64_t caller,
                     bool (*is_return)(uint64_t word))
{
    const struct walk walk = {stack, is_return};
    uint64_t frames[STACKS_FRAMES], word;
    const size_t found = walk_up(&walk, return_address, caller, frames);
    const uint64_t hash = hash_of(frames, found);

    find(hash, &word);
    if (word)
        return (uint32_t)(word & ((1u << NUMBER_BITS) - 1));
    lock_mutex_take(&lock);
    const uint32_t number = add(hash, frames, found);
    lock_mutex_release(&lock);
    return number;
}

size_t stacks_read(uint32_t stack, uint64_t frames[STACKS_FRAMES])
{
    size_t found = 0;

    if (stack == 0 || stack > atomic_load_explicit(&count, memory_order_acquire))
        return 0;
    memcpy(frames, kept[stack].frames, sizeof(kept[stack].frames));
    while (found < STACKS_FRAMES && frames[found])
        found++;
    return found;
}

void stacks_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
}
