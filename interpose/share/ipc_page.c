/* ipc_page: see ipc_page.h. */
#include "interpose/share/ipc_page.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A word, from its lowest bit: freed; number of opens; as much of the id as there is room for. */
#define FREED      UINT64_C(1)
#define ONE_OPEN   UINT64_C(2)
#define OPENS_BITS 10
#define OPENS      (((UINT64_C(1) << OPENS_BITS) - 1) * ONE_OPEN)
#define ID_SHIFT   (OPENS_BITS + 1)

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint64_t word_of(uint64_t id)
{
    return id << ID_SHIFT;
}

static bool is_of(uint64_t word, uint64_t id)
{
    return (word & ~(OPENS | FREED)) == word_of(id);
}

static int map(int fd, struct ipc_page **page)
{
    void *memory = mmap(NULL, sizeof(**page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return -errno;
    *page = memory;
    return 0;
}

int ipc_page_make(struct ipc_page **page)
{
    const int fd = memfd_create("gpucap-ipc", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    int rc = ftruncate(fd, sizeof(**page)) || fcntl(fd, F_ADD_SEALS, SEALS) ? -errno : map(fd, page);
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

int ipc_page_map(int fd, struct ipc_page **page)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat file;

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &file) || file.st_size != sizeof(**page))
        return -EPROTO;
    return map(fd, page);
}

void ipc_page_unmap(struct ipc_page *page)
{
    if (page)
        munmap(page, sizeof(*page));
}

void ipc_page_offer(struct ipc_page *page, uint64_t id)
{
    atomic_store(&page->words[ipc_page_slot(id)], word_of(id));
}

bool ipc_page_withdraw(struct ipc_page *page, uint64_t id)
{
    const uint64_t before = atomic_fetch_or(&page->words[ipc_page_slot(id)], FREED);

    return is_of(before, id) && (before & OPENS);
}

bool ipc_page_holds(const struct ipc_page *page, uint64_t id)
{
    const uint64_t word = atomic_load(&page->words[ipc_page_slot(id)]);

    return is_of(word, id) && (word & OPENS);
}

int ipc_page_take(struct ipc_page *page, uint64_t id)
{
    _Atomic uint64_t *at = &page->words[ipc_page_slot(id)];
    uint64_t word = atomic_load(at);

    do {
        if (!is_of(word, id) || (word & FREED))
            return -ENOENT;
        if ((word & OPENS) == OPENS)
            return -EMFILE;
    } while (!atomic_compare_exchange_weak(at, &word, word + ONE_OPEN));
    return 0;
}

bool ipc_page_drop(struct ipc_page *page, uint64_t id)
{
    _Atomic uint64_t *at = &page->words[ipc_page_slot(id)];
    uint64_t word = atomic_load(at);

    do {
        if (!is_of(word, id) || !(word & OPENS))
            return false; /* the exporter has dropped the block */
    } while (!atomic_compare_exchange_weak(at, &word, word - ONE_OPEN));
    return (word & OPENS) == ONE_OPEN && (word & FREED);
}
