/* A ledger in which another process may have written anything. The input is a list of patches: where, which
 * record, offset, count, and the bytes. They are written over the file before a process opens it, and again
 * after it has joined; then it does all that a process does. The first byte says whether a living process has
 * one of the slots. */
#include "fuzz.h"
#include "interpose/account/ledger_file.h"
#include "tests/support/ledger_short.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CARD       "GPU-f022"
#define JOB        "job"
#define ALIVE_SLOT 5

static char folder[] = "/tmp/gpucap-fuzz-ledger-XXXXXX";
static char path[sizeof(folder) + 32];
static struct ledger_file *file, fresh;
static int fd;

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

/* Makes the folder, and keeps what a new file holds. */
static void start(void)
{
    char why[LEDGER_WHY];
    struct ledger *ledger;

    FUZZ_PROMISE(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/" CARD ".ledger", folder);
    atexit(remove_folder);
    FUZZ_PROMISE(ledger_open(&ledger, folder, CARD, why) == 0);
    ledger_close(ledger);
    fd = open(path, O_RDWR | O_CLOEXEC);
    file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    FUZZ_PROMISE(file != MAP_FAILED);
    memcpy(&fresh, file, sizeof(fresh));
}

static void lock_slot(bool lock)
{
    struct flock range = {.l_type = lock ? F_WRLCK : F_UNLCK,
                          .l_whence = SEEK_SET,
                          .l_start = LEDGER_SLOT_BYTE + ALIVE_SLOT,
                          .l_len = 1};

    FUZZ_PROMISE(fcntl(fd, F_OFD_SETLK, &range) == 0);
}

/* The record that a patch is written over, and its size. */
static unsigned char *record(unsigned where, unsigned index, size_t *size)
{
    switch (where % 4) {
    case 0:
        *size = offsetof(struct ledger_file, jobs);
        return (unsigned char *)file;
    case 1:
        *size = sizeof(*file->jobs);
        return (unsigned char *)&file->jobs[index % LEDGER_JOBS];
    case 2:
        *size = sizeof(*file->slots);
        return (unsigned char *)&file->slots[index % (ALIVE_SLOT + 3)];
    default:
        *size = sizeof(*file->slots);
        return (unsigned char *)&file->slots[2 * index];
    }
}

static void patch(const uint8_t *bytes, size_t count)
{
    for (size_t at = 0; at + 5 <= count;) {
        size_t size, length = bytes[at + 4];
        unsigned char *to = record(bytes[at], bytes[at + 1], &size);
        const size_t offset = (bytes[at + 2] | (size_t)bytes[at + 3] << 8) % size;

        at += 5;
        length = length < count - at ? length : count - at;
        length = length < size - offset ? length : size - offset;
        memcpy(to + offset, bytes + at, length);
        at += length;
    }
    /* A living owner that never goes on costs each operation its patience: that is right, and too slow here.
     */
    if ((atomic_load(&file->lock) & LEDGER_OWNER_MASK) == ALIVE_SLOT + 1)
        atomic_store(&file->lock, 0);
}

static bool is_clean(const char *text, size_t size)
{
    const size_t length = strnlen(text, size);

    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return false;
    }
    return length < size;
}

static void read_all(const struct ledger *ledger)
{
    struct ledger_refusal refusals[LEDGER_REFUSALS];
    uint64_t apart[RECORDING_APART_COUNT];
    struct ledger_entry entry;

    for (int i = -1; i <= LEDGER_SLOTS; i++) {
        const int count = ledger_read_refusals(ledger, i, refusals);

        ledger_read_apart(ledger, i, apart);
        FUZZ_PROMISE(count >= 0 && count <= LEDGER_REFUSALS);
        if (ledger_read(ledger, i, &entry)) {
            FUZZ_PROMISE(i == ledger->slot || i == ALIVE_SLOT);
            FUZZ_PROMISE(is_clean(entry.job, LEDGER_NAME) && is_clean(entry.command, LEDGER_COMMAND));
        }
    }
}

static void work(struct ledger *ledger)
{
    const struct ledger_figures figures = {1, 2, 3, 4, 5};
    const struct ledger_refusal refusal = {1, 2, 3, 4, 5, 6, 7};
    const uint64_t apart[RECORDING_APART_COUNT] = {6};
    uint64_t bytes;
    int rc;

    rc = ledger_extend(ledger, 500);
    FUZZ_PROMISE(rc == 0 || rc == -ENOMEM);
    FUZZ_PROMISE(rc || !ledger->job || ledger->lease >= 500);
    ledger_settle(ledger, 200);
    rc = ledger_wait_for(ledger, 0, 300, 0);
    FUZZ_PROMISE(rc == 0 || rc == -ENOMEM || rc == -ETIMEDOUT || rc == -EDEADLK);
    ledger_publish(ledger, &figures);
    ledger_note_refusal(ledger, &refusal, apart);
    ledger_ask(ledger, 100, 0);
    ledger_poke(ledger, ALIVE_SLOT, 1, 0);
    ledger_poke(ledger, ledger->slot, 1, 0);
    const struct ledger_slot *slot = ledger_own_slot(ledger);
    if (slot && atomic_load(&slot->wanted) != atomic_load(&slot->answered)) { /* or it sleeps for ever */
        FUZZ_PROMISE(ledger_listen(ledger, &bytes));
        (void)ledger_asker(ledger);
        ledger_note_lent(ledger, 1);
        ledger_answer(ledger);
    }
    rc = ledger_set_max(ledger, JOB, 1000);
    FUZZ_PROMISE(rc == 0 || rc == -ENOSPC);
    read_all(ledger);
    (void)ledger_room(ledger);
    (void)ledger_max(ledger);
}

static int full(void *unused, uint64_t bytes)
{
    (void)unused;
    (void)bytes;
    return -EBUSY;
}

static void work_on_card(struct ledger *ledger)
{
    uint64_t ticket = 0;
    int rc = ledger_admit(ledger, 100, 1000, ledger_admitted(ledger));

    FUZZ_PROMISE(rc == 0 || rc == -ENOMEM);
    ledger_end_claim(ledger, 100);
    ledger_ask_card(ledger, 100, 1, 0);
    rc = ledger_wait_card(ledger, 100, &ticket, 0, full, NULL);
    FUZZ_PROMISE(rc == -ETIMEDOUT || rc == -EDEADLK);
    (void)ledger_above_high(ledger);
    rc = ledger_set_limit(ledger, JOB, LEDGER_MIN, 100);
    FUZZ_PROMISE(rc == 0 || rc == -ENOSPC);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char why[LEDGER_WHY];
    struct ledger *ledger;

    if (count < 2)
        return 0;
    if (!file)
        start();
    memcpy(file, &fresh, sizeof(fresh));
    patch(bytes + 2, count - 2);
    lock_slot(bytes[0] & 1);
    int rc = ledger_open(&ledger, folder, CARD, why);
    FUZZ_PROMISE(rc == 0 || (rc == -EPROTONOSUPPORT && bytes[0] & 1 && why[0]));
    if (rc == 0) {
        rc = ledger_join(ledger, bytes[0] & 2 ? NULL : JOB, 1000);
        FUZZ_PROMISE(rc == 0 || rc == -ENOSPC);
        work(ledger);
        patch(bytes + 2, bytes[1] % (count - 1)); /* not all of it */
        work(ledger);
        if (bytes[0] & 4)
            work_on_card(ledger);
        ledger_close(ledger);
    }
    lock_slot(false);
    return 0;
}
