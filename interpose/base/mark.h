/* mark: what is known of one block, large or small: whose it is, how much was asked for, who else holds it.
 *
 * Whoever changes the word by compare-and-swap has the block. The number in it is never used twice, so a word
 * that is still the same means that nothing has happened. Everything else is written by who has the block,
 * and may be read at any time.
 */
#ifndef GPUCAP_MARK_H
#define GPUCAP_MARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The word: the block's number times four, and one of these. 0: not a block of the program's. */
enum mark_state {
    MARK_CACHED = 0, /* a thread's, for its next request (cache.h) */
    MARK_LIVE = 1,
    MARK_BUSY = 2,   /* between the two; or freed, while others hold its memory */
    MARK_PINNED = 3, /* live, and others hold its memory: never cached */
    MARK_STATE = 3,
};

struct mark {
    _Atomic uint64_t word;
    _Atomic uint64_t asked; /* bytes that the program asked for */
    uint32_t pins;          /* who else holds the backing; guarded by the pool's lock */
    _Atomic uint16_t tag;   /* under which its bytes are counted */
    _Atomic bool sync_memops;
    _Atomic bool exposed; /* others may reach its memory after the program has freed it */
};

/* True: the word was the one, and is the other now. */
static inline bool mark_change(struct mark *mark, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong_explicit(&mark->word, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
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
