/* ledger_support: a private folder for ledgers, and processes that use one. See ledger_support.h. */
#include "ledger_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#define LEDGERS_MAX 600
#define MEMBERS_MAX 64
#define FD_LIMIT    2000 /* above any descriptor of a ledger */
#define PATIENT_MS  600000

char test_folder[LEDGER_PATH];

static struct ledger *ledgers[LEDGERS_MAX];
static pid_t members[MEMBERS_MAX];

void test_begin(void)
{
    strcpy(test_folder, "/tmp/gpucap-ledger-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(test_folder));
}

static void remove_folder(void)
{
    DIR *listing = opendir(test_folder);
    const struct dirent *entry;
    char path[2 * LEDGER_PATH];

    while (listing && (entry = readdir(listing))) {
        snprintf(path, sizeof(path), "%s/%.200s", test_folder, entry->d_name);
        if (unlink(path))
            rmdir(path);
    }
    if (listing)
        closedir(listing);
    rmdir(test_folder);
}

void test_end(void)
{
    for (int i = 0; i < MEMBERS_MAX; i++) {
        if (members[i]) {
            kill(members[i], SIGKILL);
            waitpid(members[i], NULL, 0);
        }
        members[i] = 0;
    }
    for (int i = 0; i < LEDGERS_MAX; i++) {
        ledger_close(ledgers[i]);
        ledgers[i] = NULL;
    }
    remove_folder();
}

void test_be_patient(struct ledger *ledger)
{
    ledger->patience_ms = ledger->slow_ms = PATIENT_MS;
}

struct ledger *test_open(void)
{
    char why[LEDGER_WHY] = "";
    int i = 0;

    while (i < LEDGERS_MAX - 1 && ledgers[i])
        i++;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, ledger_open(&ledgers[i], test_folder, CARD, why), why);
    test_be_patient(ledgers[i]);
    return ledgers[i];
}

struct ledger *test_join(const char *job, uint64_t max)
{
    struct ledger *ledger = test_open();

    TEST_ASSERT_EQUAL_INT(0, ledger_join(ledger, job, max));
    return ledger;
}

void test_close(struct ledger *ledger)
{
    for (int i = 0; i < LEDGERS_MAX; i++) {
        if (ledgers[i] == ledger)
            ledgers[i] = NULL;
    }
    ledger_close(ledger);
}

void test_after_fork(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < LEDGERS_MAX; i++) {
        if (ledgers[i])
            ledger_after_fork(ledgers[i]);
    }
}

uint64_t test_sum(struct ledger *ledger)
{
    TEST_ASSERT_EQUAL_INT(0, ledger_lock(ledger));
    const uint64_t sum = atomic_load(&ledger->job->sum);
    ledger_unlock(ledger);
    return sum;
}

uint64_t test_living(struct ledger *ledger)
{
    uint64_t sum = 0;

    TEST_ASSERT_EQUAL_INT(0, ledger_lock(ledger));
    for (int i = 0; i < LEDGER_SLOTS; i++) {
        const struct ledger_slot *slot = &ledger->file->slots[i];

        if (atomic_load(&slot->state) == LEDGER_MEMBER && ledger_job_of(ledger, slot) == ledger->job &&
            ledger_alive(ledger, i))
            sum += atomic_load(&slot->lease);
    }
    ledger_unlock(ledger);
    return sum;
}

/* ---- members ---- */

struct message {
    uint64_t order, a, b;
};

static int own_file = -1;

static void close_all(int orders, int answers)
{
    for (int fd = 3; fd < FD_LIMIT; fd++) {
        if (fd != orders && fd != answers)
            close(fd);
    }
}

static int dup_over(const struct ledger *ledger)
{
    char path[2 * LEDGER_PATH];

    snprintf(path, sizeof(path), "%s/program's", test_folder);
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    own_file = dup2(fd, ledger->fd);
    close(fd);
    return own_file;
}

static int own_file_is_untouched(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[2 * LEDGER_PATH];
    struct stat by_name, by_number;

    snprintf(path, sizeof(path), "%s/program's", test_folder);
    const int other = open(path, O_RDWR);
    const int free_of_locks = fcntl(other, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
    const int same = fstat(other, &by_name) == 0 && fstat(own_file, &by_number) == 0 &&
                     by_name.st_ino == by_number.st_ino && by_number.st_size == 0;
    close(other);
    return free_of_locks && same;
}

static int64_t fork_child(struct ledger *ledger, int orders, int answers)
{
    int ready[2];
    char byte = 1;

    if (pipe(ready))
        return -1;
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        alarm(250); /* if a test fails, it does not stay for ever */
        ledger_after_fork(ledger);
        close(orders);
        close(answers);
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        return -1;
    close(ready[0]);
    close(ready[1]);
    return child;
}

static int64_t obey(struct ledger *ledger, const struct message *message, int orders, int answers)
{
    uint64_t bytes;

    switch ((enum order)message->order) {
    case ORDER_EXTEND:
        return ledger_extend(ledger, message->a);
    case ORDER_SETTLE:
        ledger_settle(ledger, message->a);
        return 0;
    case ORDER_PUBLISH:
        ledger_publish_used(ledger, message->a);
        return 0;
    case ORDER_LEASE:
        return (int64_t)ledger_lease(ledger);
    case ORDER_WAIT:
        return ledger_wait_for(ledger, 0, message->a, message->b);
    case ORDER_ASK:
        return ledger_ask(ledger, message->a, (unsigned)message->b);
    case ORDER_LISTEN:
        return ledger_listen(ledger, &bytes) ? (int64_t)bytes : -1;
    case ORDER_ANSWER:
        ledger_note_lent(ledger, message->a);
        ledger_answer(ledger);
        return 0;
    case ORDER_MAX:
        return (int64_t)ledger_max(ledger);
    case ORDER_CLOSE_ALL:
        close_all(orders, answers);
        return 0;
    case ORDER_DUP_OVER:
        return dup_over(ledger);
    case ORDER_OWN_FILE:
        return own_file_is_untouched();
    case ORDER_FORK:
        return fork_child(ledger, orders, answers);
    case ORDER_END:
        break;
    }
    return 0;
}

static void answer(int answers, int64_t value)
{
    if (write(answers, &value, sizeof(value)) != sizeof(value))
        _exit(3);
}

static void run_member(const char *job, uint64_t max, int orders, int answers)
{
    char why[LEDGER_WHY];
    struct message message;
    struct ledger *ledger;

    test_after_fork();
    int rc = ledger_open(&ledger, test_folder, CARD, why);
    if (rc == 0) {
        test_be_patient(ledger);
        rc = ledger_join(ledger, job, max);
    }
    answer(answers, rc ? rc : ledger->slot);
    while (rc == 0 && read(orders, &message, sizeof(message)) == sizeof(message)) {
        if (message.order == ORDER_END) {
            ledger_close(ledger);
            _exit(0);
        }
        answer(answers, obey(ledger, &message, orders, answers));
    }
    _exit(2);
}

struct member member_start(const char *job, uint64_t max)
{
    int orders[2], answers[2], i = 0;
    struct member member;

    TEST_ASSERT_EQUAL_INT(0, pipe2(orders, O_CLOEXEC));
    TEST_ASSERT_EQUAL_INT(0, pipe2(answers, O_CLOEXEC));
    member.pid = fork();
    TEST_ASSERT_NOT_EQUAL(-1, member.pid);
    if (member.pid == 0)
        run_member(job, max, orders[0], answers[1]);
    close(orders[0]);
    close(answers[1]);
    while (i < MEMBERS_MAX - 1 && members[i])
        i++;
    members[i] = member.pid;
    member.orders = orders[1];
    member.answers = answers[0];
    member.slot = (int)member_answer(&member);
    TEST_ASSERT_GREATER_OR_EQUAL_INT(0, member.slot);
    return member;
}

void member_send(const struct member *member, enum order order, uint64_t a, uint64_t b)
{
    const struct message message = {order, a, b};

    TEST_ASSERT_EQUAL_INT(sizeof(message), write(member->orders, &message, sizeof(message)));
}

int64_t member_answer(const struct member *member)
{
    int64_t value = 0;

    TEST_ASSERT_EQUAL_INT_MESSAGE(sizeof(value), read(member->answers, &value, sizeof(value)),
                                  "the member has ended");
    return value;
}

int64_t member_do(const struct member *member, enum order order, uint64_t a, uint64_t b)
{
    member_send(member, order, a, b);
    return member_answer(member);
}

static int reap(struct member *member)
{
    int status = -1;

    for (int i = 0; i < MEMBERS_MAX; i++) {
        if (members[i] == member->pid)
            members[i] = 0;
    }
    waitpid(member->pid, &status, 0);
    close(member->orders);
    close(member->answers);
    member->pid = 0;
    return status;
}

void member_kill(struct member *member)
{
    kill(member->pid, SIGKILL);
    reap(member);
}

void member_end(struct member *member)
{
    member_send(member, ORDER_END, 0, 0);
    TEST_ASSERT_EQUAL_INT(0, reap(member));
}

void await_waiting(const struct ledger *ledger, int slot)
{
    struct ledger_entry entry = {0};

    while (!ledger_read(ledger, slot, &entry) || !entry.waiting)
        sched_yield();
}

void await_waited(const struct ledger *ledger, const struct member *member)
{
    struct pollfd answers = {.fd = member->answers, .events = POLLIN};
    struct ledger_entry entry = {0};

    while ((!ledger_read(ledger, member->slot, &entry) || !entry.waiting) && poll(&answers, 1, 0) == 0)
        sched_yield();
}
