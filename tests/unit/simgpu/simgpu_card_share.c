/* The cards as several processes share them: sums are exact, and a process that dies at any point loses and
 * blocks nothing. Each test is a machine of its own (GPUCAP_SIM_ID) whose file the test removes. The test
 * process forks and never opens the cards itself, since a process opens them only once.
 */
#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/engine/sim_card_file.h"
#include "unity.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB      ((uint64_t)1 << 20)
#define CAPACITY (64 * MIB)

static char path[160];
static int machine;

void setUp(void)
{
    char id[64], why[64];
    struct sim_card_spec spec;
    snprintf(id, sizeof(id), "card-test-%d-%d", (int)getpid(), machine++);
    setenv("GPUCAP_SIM_ID", id, 1);
    setenv("GPUCAP_SIM", "2x64M", 1);
    TEST_ASSERT_EQUAL_INT(0, sim_card_spec_parse("2x64M", &spec, why, sizeof(why)));
    snprintf(path, sizeof(path), "/dev/shm/simgpu-%u-%s-%016llx", (unsigned)geteuid(), id,
             (unsigned long long)sim_card_spec_hash(&spec));
}

void tearDown(void)
{
    unlink(path);
}

static pid_t spawn(int (*body)(void *), void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    TEST_ASSERT_TRUE(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process behind */
        _exit(body(arg));
    }
    return pid;
}

static int ended(pid_t pid)
{
    int status;
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void in_child(int (*body)(void *), void *arg)
{
    TEST_ASSERT_EQUAL_INT(0, ended(spawn(body, arg)));
}

/* In a child: says which line failed, and ends with a status that is not 0. */
#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                       \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

static int fill_to_the_byte(void *arg)
{
    (void)arg;
    CHECK(sim_card_open() == 0 && sim_card_open() == 0);
    CHECK(sim_card_count() == 2 && sim_card_info(0)->capacity == CAPACITY && !sim_card_info(2) &&
          !sim_card_info(-1));
    CHECK(sim_card_charge(0, CAPACITY - 1) == 0 && sim_card_charge(0, 2) == -ENOMEM &&
          sim_card_charge(0, 1) == 0);
    CHECK(sim_card_charge(0, 1) == -ENOMEM && sim_card_charge(0, UINT64_MAX) == -ENOMEM &&
          sim_card_charge(0, 0) == 0);
    CHECK(sim_card_used(0) == CAPACITY && sim_card_used(1) == 0);
    sim_card_uncharge(0, CAPACITY + 5);
    CHECK(sim_card_used(0) == 0 && sim_card_charge(2, 1) == -ENODEV && sim_card_charge(-1, 1) == -ENODEV);
    return 0;
}

static void test_a_card_gives_its_capacity_to_the_byte_and_no_more(void)
{
    in_child(fill_to_the_byte, NULL);
}

struct meeting {
    int ready[2], go[2];
};

static int hold_some(void *arg)
{
    struct meeting *m = arg;
    char c = 0;
    CHECK(sim_card_open() == 0 && sim_card_charge(0, 10 * MIB) == 0 && sim_card_charge(1, MIB) == 0);
    sim_card_enter(0);
    sim_card_enter(1);
    CHECK(write(m->ready[1], &c, 1) == 1);
    return read(m->go[0], &c, 1) == 1 ? 0 : 1;
}

static int see_neighbour_and_its_death(void *arg)
{
    struct meeting *m = arg;
    struct sim_card_process list[4];
    char c;
    pid_t other = spawn(hold_some, m);
    CHECK(read(m->ready[0], &c, 1) == 1 && sim_card_open() == 0);
    CHECK(sim_card_charge(0, MIB) == 0 && sim_card_used(0) == 11 * MIB && sim_card_used(1) == MIB);
    CHECK(sim_card_processes(0, list, 4) == 1); /* this process has no context yet */
    sim_card_enter(0);
    CHECK(sim_card_processes(0, list, 4) == 2 && sim_card_processes(0, list, 1) == 2 &&
          sim_card_processes(1, list, 4) == 1);
    CHECK(list[0].pid == other && list[0].bytes == MIB);
    CHECK(sim_card_charge(0, CAPACITY - 11 * MIB + 1) == -ENOMEM);
    kill(other, SIGKILL);
    CHECK(waitpid(other, NULL, 0) == other);
    /* A charge frees the memory of the dead process by itself. */
    CHECK(sim_card_charge(0, CAPACITY - MIB) == 0 && sim_card_used(0) == CAPACITY &&
          sim_card_processes(0, list, 4) == 1);
    return 0;
}

static void test_memory_of_a_killed_process_is_free_again(void)
{
    struct meeting m;
    TEST_ASSERT_EQUAL_INT(0, pipe(m.ready) | pipe(m.go));
    in_child(see_neighbour_and_its_death, &m);
    close(m.ready[0]), close(m.ready[1]), close(m.go[0]), close(m.go[1]);
}

static int count_to_a_thousand(void *arg)
{
    uint64_t *witness = arg;
    CHECK(sim_card_open() == 0);
    for (unsigned i = 1, granted = 0; granted < 1000; i++) {
        uint64_t bytes = (i % 7 + 1) * 4 * MIB;
        if (sim_card_charge(0, bytes))
            continue;
        granted++;
        CHECK(__atomic_add_fetch(witness, bytes, __ATOMIC_SEQ_CST) <= CAPACITY);
        __atomic_sub_fetch(witness, bytes, __ATOMIC_SEQ_CST);
        sim_card_uncharge(0, bytes);
    }
    return 0;
}

static void test_processes_that_race_never_pass_the_capacity(void)
{
    enum { RACERS = 6 };
    pid_t pid[RACERS];
    uint64_t *witness =
        mmap(NULL, sizeof(*witness), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(witness != MAP_FAILED);
    for (int i = 0; i < RACERS; i++)
        pid[i] = spawn(count_to_a_thousand, witness);
    for (int i = 0; i < RACERS; i++)
        TEST_ASSERT_EQUAL_INT(0, ended(pid[i]));
    munmap(witness, sizeof(*witness));
}

/* Charges and gives back until it is killed. */
static int churn(void *arg)
{
    (void)arg;
    CHECK(sim_card_open() == 0);
    for (unsigned i = 1;; i++) {
        uint64_t bytes = (i % 7 + 1) * 4 * MIB;
        if (!sim_card_charge(0, bytes))
            sim_card_uncharge(0, bytes);
        if (i % 16 == 0)
            CHECK(sim_card_used(0) <= CAPACITY);
    }
}

static int take_and_give_back(void *arg)
{
    (void)arg;
    CHECK(sim_card_open() == 0);
    while (sim_card_charge(0, MIB))
        sched_yield();
    CHECK(sim_card_used(0) >= MIB);
    sim_card_uncharge(0, MIB);
    return 0;
}

static int whole_card_is_free(void *arg)
{
    (void)arg;
    CHECK(sim_card_open() == 0 && sim_card_used(0) == 0 && sim_card_charge(0, CAPACITY) == 0);
    return 0;
}

static void test_kills_at_any_point_block_no_process_and_lose_no_capacity(void)
{
    enum { CHURNERS = 4, KILLS = 120, LOOK_EVERY = 10 };
    pid_t pid[CHURNERS];
    for (int i = 0; i < CHURNERS; i++)
        pid[i] = spawn(churn, NULL);
    for (int i = 0; i < KILLS; i++) {
        int victim = i % CHURNERS;
        struct timespec pause = {.tv_nsec = i * 7919L % 3000 * 1000};
        nanosleep(&pause, NULL);
        kill(pid[victim], SIGKILL);
        TEST_ASSERT_EQUAL_INT(128 + SIGKILL, ended(pid[victim]));
        pid[victim] = spawn(churn, NULL);
        if (i % LOOK_EVERY == 0)
            in_child(take_and_give_back, NULL);
    }
    for (int i = 0; i < CHURNERS; i++) {
        kill(pid[i], SIGKILL);
        TEST_ASSERT_EQUAL_INT(128 + SIGKILL, ended(pid[i]));
    }
    in_child(whole_card_is_free, NULL);
}

static int die_with_the_lock(void *arg)
{
    struct sim_card_file file;
    struct sim_card_spec spec;
    char why[64];
    (void)arg;
    CHECK(sim_card_spec_parse("2x64M", &spec, why, sizeof(why)) == 0);
    CHECK(sim_card_file_open(&file, getenv("GPUCAP_SIM_ID"), &spec) == 0 && sim_card_file_lock(&file) == 0);
    file.shared->slot[file.slot].bytes[0] = CAPACITY;
    raise(SIGKILL);
    return 1;
}

static int survive_owner_of_the_lock(void *arg)
{
    (void)arg;
    CHECK(sim_card_open() == 0 && ended(spawn(die_with_the_lock, NULL)) == 128 + SIGKILL);
    CHECK(sim_card_charge(0, CAPACITY) == 0);
    return 0;
}

static void test_a_process_killed_with_the_lock_held_blocks_no_other(void)
{
    in_child(survive_owner_of_the_lock, NULL);
}

static void put_file(const char *bytes, size_t count, off_t size, mode_t mode)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, mode);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL_INT(0, fchmod(fd, mode));
    TEST_ASSERT_EQUAL_INT(0, ftruncate(fd, size));
    TEST_ASSERT_EQUAL_INT(count, pwrite(fd, bytes, count, 0));
    close(fd);
}

static void test_a_garbage_short_or_long_file_is_made_new(void)
{
    static char garbage[sizeof(struct sim_card_shared)];
    static const off_t sizes[] = {0, 1, 4096, sizeof(struct sim_card_shared),
                                  sizeof(struct sim_card_shared) + 8192};
    memset(garbage, 0xa5, sizeof(garbage));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t count = (size_t)sizes[i] < sizeof(garbage) ? (size_t)sizes[i] : sizeof(garbage);
        put_file(garbage, count, sizes[i], 0600);
        in_child(whole_card_is_free, NULL);
    }
}

static int open_is_refused(void *arg)
{
    int *expected = arg;
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    return sim_card_open() == *expected && sim_card_charge(0, 1) == -ENODEV && sim_card_used(0) == 0 ? 0 : 1;
}

static void test_a_link_or_a_file_that_others_can_write_is_refused(void)
{
    int error = -ELOOP;
    TEST_ASSERT_EQUAL_INT(0, symlink("/dev/null", path));
    in_child(open_is_refused, &error);
    unlink(path);
    error = -EPERM;
    put_file("", 0, 0, 0666);
    in_child(open_is_refused, &error);
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    in_child(open_is_refused, &error);
}

static int a_damaged_file_in_use_is_refused(void *arg)
{
    int error = -EBADMSG, fd;
    (void)arg;
    CHECK(sim_card_open() == 0 && sim_card_charge(0, MIB) == 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && pwrite(fd, "damage", 6, 0) == 6);
    CHECK(ended(spawn(open_is_refused, &error)) == 0);
    return sim_card_used(0) == MIB ? 0 : 1;
}

static void test_a_damaged_file_is_not_made_new_under_a_living_owner(void)
{
    in_child(a_damaged_file_in_use_is_refused, NULL);
}

static void test_a_bad_specification_or_name_is_refused(void)
{
    int error = -EINVAL;
    setenv("GPUCAP_SIM", "sixteen", 1);
    in_child(open_is_refused, &error);
    setenv("GPUCAP_SIM", "2x64M", 1);
    setenv("GPUCAP_SIM_ID", "../../etc/passwd", 1);
    in_child(open_is_refused, &error);
}

static int child_has_its_own_slot(void *arg)
{
    (void)arg;
    sim_card_forget();
    CHECK(sim_card_charge(0, MIB) == -ENODEV);
    sim_card_uncharge(0, MIB);
    CHECK(sim_card_open() == 0 && sim_card_used(0) == 8 * MIB && sim_card_charge(0, MIB) == 0 &&
          sim_card_used(0) == 9 * MIB);
    return 0;
}

static int fork_after_charge(void *arg)
{
    (void)arg;
    CHECK(sim_card_open() == 0 && sim_card_charge(0, 8 * MIB) == 0);
    CHECK(ended(spawn(child_has_its_own_slot, NULL)) == 0);
    return sim_card_used(0) == 8 * MIB && sim_card_charge(0, CAPACITY - 8 * MIB) == 0 ? 0 : 1;
}

static void test_a_forked_child_leaves_the_parents_account_alone(void)
{
    in_child(fork_after_charge, NULL);
}

static int wait_for_go(void *arg)
{
    struct meeting *m = arg;
    char c = 0;
    CHECK(write(m->ready[1], &c, 1) == 1);
    return read(m->go[0], &c, 1) == 1 ? 0 : 1;
}

static int charge_fork_and_die(void *arg)
{
    CHECK(sim_card_open() == 0 && sim_card_charge(0, CAPACITY) == 0);
    if (!fork()) /* not by spawn(): this one outlives its parent */
        _exit(wait_for_go(arg));
    raise(SIGKILL);
    return 1;
}

static void test_a_child_that_outlives_its_parent_does_not_keep_the_parents_memory(void)
{
    struct meeting m;
    char c = 0;
    TEST_ASSERT_EQUAL_INT(0, pipe(m.ready) | pipe(m.go));
    TEST_ASSERT_EQUAL_INT(128 + SIGKILL, ended(spawn(charge_fork_and_die, &m)));
    TEST_ASSERT_EQUAL_INT(1, read(m.ready[0], &c, 1));
    in_child(whole_card_is_free, NULL);
    TEST_ASSERT_EQUAL_INT(1, write(m.go[1], &c, 1));
    close(m.ready[0]), close(m.ready[1]), close(m.go[0]), close(m.go[1]);
}

static int card_is_full(void *arg)
{
    (void)arg;
    return sim_card_open() == 0 && sim_card_charge(0, 1) == -ENOMEM && sim_card_used(0) == CAPACITY ? 0 : 1;
}

static int close_everything(void *arg)
{
    (void)arg;
    CHECK(sim_card_open() == 0 && sim_card_charge(0, CAPACITY) == 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    close_range(3, ~0u, 0);
    CHECK(ended(spawn(card_is_full, NULL)) == 0);
    sim_card_uncharge(0, MIB);
    return sim_card_charge(0, MIB) == 0 && sim_card_used(0) == CAPACITY ? 0 : 1;
}

static void test_a_program_that_closes_every_descriptor_keeps_its_slot(void)
{
    in_child(close_everything, NULL);
}

static int open_and_close(void *arg)
{
    struct sim_card_file file;
    struct sim_card_spec spec;
    char why[64];
    (void)arg;
    CHECK(sim_card_spec_parse("2x64M", &spec, why, sizeof(why)) == 0);
    CHECK(sim_card_file_open(&file, getenv("GPUCAP_SIM_ID"), &spec) == 0);
    sim_card_file_close(&file);
    return 0;
}

static int die_at_once(void *arg)
{
    (void)arg;
    if (sim_card_open() == 0)
        raise(SIGKILL);
    return 1;
}

static void test_the_last_process_removes_the_file(void)
{
    char left[sizeof(path)];
    TEST_ASSERT_EQUAL_INT(128 + SIGKILL, ended(spawn(die_at_once, NULL)));
    memcpy(left, path, sizeof(left));
    setUp(); /* another machine: its first process removes what the killed one left, its last one its own file
              */
    in_child(open_and_close, NULL);
    TEST_ASSERT_EQUAL_INT(-1, access(left, F_OK));
    TEST_ASSERT_EQUAL_INT(-1, access(path, F_OK));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_card_gives_its_capacity_to_the_byte_and_no_more);
    RUN_TEST(test_memory_of_a_killed_process_is_free_again);
    RUN_TEST(test_processes_that_race_never_pass_the_capacity);
    RUN_TEST(test_kills_at_any_point_block_no_process_and_lose_no_capacity);
    RUN_TEST(test_a_process_killed_with_the_lock_held_blocks_no_other);
    RUN_TEST(test_a_garbage_short_or_long_file_is_made_new);
    RUN_TEST(test_a_link_or_a_file_that_others_can_write_is_refused);
    RUN_TEST(test_a_damaged_file_is_not_made_new_under_a_living_owner);
    RUN_TEST(test_a_bad_specification_or_name_is_refused);
    RUN_TEST(test_a_forked_child_leaves_the_parents_account_alone);
    RUN_TEST(test_a_child_that_outlives_its_parent_does_not_keep_the_parents_memory);
    RUN_TEST(test_a_program_that_closes_every_descriptor_keeps_its_slot);
    RUN_TEST(test_the_last_process_removes_the_file);
    return UNITY_END();
}
