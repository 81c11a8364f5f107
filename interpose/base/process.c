/* process: see process.h. */
#include "interpose/base/process.h"

#include <unistd.h>

#include "interpose/base/clock.h"
#include "interpose/base/pages.h"

#define PATIENCE_NS UINT64_C(1000000000) /* locks are held for milliseconds, also while chunks are mapped */

static atomic_int *page; /* two words: the caller's, and 1 */
static atomic_int owner; /* process that has started CUDA; 0: none */

atomic_int *process_mark(void)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = pages_map(bytes);

    if (memory && madvise(memory, bytes, MADV_WIPEONFORK) == 0) {
        page = memory;
        atomic_store(&page[1], 1);
    } else if (memory) {
        munmap(memory, bytes);
    }
    atomic_store(&owner, (int)getpid());
    return page;
}

bool process_is_copy(void)
{
    const int marked = atomic_load(&owner);

    return marked && ((page && !atomic_load(&page[1])) || marked != (int)getpid());
}

struct timespec process_exit_patience(void)
{
    return clock_after(PATIENCE_NS);
}

bool process_lock_at_exit(pthread_mutex_t *lock)
{
    const struct timespec until = process_exit_patience();

    return pthread_mutex_timedlock(lock, &until) == 0;
}
