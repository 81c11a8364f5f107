/* mark: the state of one block, large or small: who has it, how much was asked for, who else has it open.
 *
 * The thread that changes the word by compare-and-swap has the block. The number in the word is never used
 * twice, so an unchanged word means that nothing has happened. The other fields are written by the thread
 * that has the block, and may be read at any time.
 */
#ifndef GPUCAP_MARK_H
#define GPUCAP_MARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The word is four times the block's number plus one of these. 0: not a block of the program. */
enum mark_state {
    MARK_CACHED = 0, /* kept by a thread for its next request (cache.h) */
    MARK_LIVE = 1,
    MARK_BUSY = 2,   /* in transition; or freed while other processes have it open */
    MARK_PINNED = 3, /* live, and other processes have it open: never cached */
    MARK_STATE = 3,
};

struct mark {
    _Atomic uint64_t word;
    _Atomic uint64_t asked; /* bytes that the program asked for */
    uint32_t pins;          /* number of others that have the memory open; guarded by the pool's lock */
    _Atomic uint16_t tag;   /* tag under which its bytes are counted */
    _Atomic bool sync_memops;
    _Atomic bool exposed; /* a descriptor or device may reach its memory after the program has freed it */
};

/* Replaces the word if it is still `from`. Returns true if it was. If it was not, another thread has taken
 * the block out of a slot of the cache (cache.h), and the caller may put another block there: it acquires, so
 * that the other thread's read of the slot comes before that. */
static inline bool mark_change(struct mark *mark, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong_explicit(&mark->word, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static inline uint64_t mark_word(const struct mark *mark)
{
    return atomic_load_explicit(&mark->word, memory_order_acquire);
}

static inline uint64_t mark_asked(const struct mark *mark)
{
    return atomic_load_explicit(&mark->asked, memory_order_relaxed);
}

#endif
