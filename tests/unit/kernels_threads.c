/* The parallel loop of the CPU reference (every item once, from several callers, inside itself, after fork,
 * the same bits for any number of threads), and how the table queues work: refusals are passed on, what was
 * captured can run again. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu_threads.h"
#include "kernels/ops_cpu.h"
#include "unity.h"

enum { ITEMS = 10007, GRAIN = 16 };

void setUp(void) {}

void tearDown(void) {}

struct visits {
    int *count;
    size_t items;
};

static void visit(const void *arg, size_t begin, size_t end)
{
    const struct visits *v = arg;

    for (size_t i = begin; i < end; i++)
        v->count[i] += end <= v->items && begin % GRAIN == 0 && end - begin <= GRAIN;
}

/* Whether every item of a loop was visited once, in pieces that begin at multiples of the grain. */
static int visits_all_once(size_t items)
{
    struct visits v = {calloc(items + 1, sizeof(int)), items};
    int right = v.count != NULL;

    cpu_threads_for(items, GRAIN, visit, &v);
    for (size_t i = 0; right && i <= items; i++)
        right = v.count[i] == (i < items);
    free(v.count);
    return right;
}

static void test_every_item_is_visited_once(void)
{
    TEST_ASSERT_TRUE(cpu_threads_count() >= 1);
    TEST_ASSERT_TRUE(visits_all_once(0));
    TEST_ASSERT_TRUE(visits_all_once(1));
    TEST_ASSERT_TRUE(visits_all_once(GRAIN));
    TEST_ASSERT_TRUE(visits_all_once(GRAIN + 1));
    for (int i = 0; i < 200; i++)
        TEST_ASSERT_TRUE(visits_all_once(ITEMS + (size_t)i));
}

static void *call_often(void *failures)
{
    for (int i = 0; i < 100; i++)
        *(int *)failures += !visits_all_once(ITEMS);
    return NULL;
}

static void test_several_threads_may_run_loops_at_once(void)
{
    enum { CALLERS = 4 };
    pthread_t callers[CALLERS];
    int failures[CALLERS] = {0};

    for (int i = 0; i < CALLERS; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&callers[i], NULL, call_often, &failures[i]));
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
        TEST_ASSERT_EQUAL_INT(0, failures[i]);
    }
}

static void loop_inside(const void *arg, size_t begin, size_t end)
{
    int *right = *(int *const *)arg;

    for (size_t i = begin; i < end; i++)
        right[i] = visits_all_once(100);
}

static void test_a_loop_inside_a_loop_ends(void)
{
    enum { OUTER = 50 };
    int right[OUTER] = {0}, *pointer = right;

    cpu_threads_for(OUTER, 1, loop_inside, &pointer);
    for (int i = 0; i < OUTER; i++)
        TEST_ASSERT_EQUAL_INT(1, right[i]);
}

static void test_a_child_of_fork_has_threads_of_its_own(void)
{
    int status;
    pid_t child;

    TEST_ASSERT_TRUE(visits_all_once(ITEMS)); /* the parent's threads exist by now */
    child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0)
        _exit(visits_all_once(ITEMS) ? 0 : 1);
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

enum { M = 150, N = 190, K = 77 };

static void compute_product(float *c)
{
    static float a[M * K], b[K * N];

    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i * 7 % 23) / 23.0f - 0.4f;
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i * 5 % 19) / 19.0f - 0.6f;
    cpu_gemm(&(struct op_gemm){.a = a, .b = b, .c = c, .m = M, .n = N, .k = K, .alpha = 1.0f});
}

static void test_results_do_not_depend_on_the_number_of_threads(void)
{
    static float many[M * N], one[M * N];
    int pipe_ends[2], status;
    size_t got = 0;
    pid_t child;

    compute_product(many);
    TEST_ASSERT_EQUAL_INT(0, pipe(pipe_ends));
    child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((size_t)sched_getcpu(), &set);
        if (sched_setaffinity(0, sizeof(set), &set) || cpu_threads_count() != 1)
            _exit(1);
        compute_product(one);
        _exit(write(pipe_ends[1], one, sizeof(one)) == (ssize_t)sizeof(one) ? 0 : 1);
    }
    close(pipe_ends[1]);
    while (got < sizeof(one)) {
        ssize_t n = read(pipe_ends[0], (char *)one + got, sizeof(one) - got);

        if (n <= 0)
            break;
        got += (size_t)n;
    }
    close(pipe_ends[0]);
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    TEST_ASSERT_EQUAL_MEMORY(many, one, sizeof(one));
}

/* A stream that keeps what is queued until the test runs it. */
static struct {
    void (*fn)(void *arg);
    void *arg;
} queued[4];
static int queued_count, capturing;

static int keep(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    (void)stream;
    queued[queued_count].fn = fn;
    queued[queued_count++].arg = arg;
    return 0;
}

static int refuse(ops_stream stream, void (*fn)(void *arg), void *arg)
{
    const int some_error = 700;

    (void)stream, (void)fn, (void)arg;
    return some_error;
}

static int is_capturing(ops_stream stream)
{
    (void)stream;
    return capturing;
}

static void test_a_refused_launch_is_passed_on(void)
{
    struct ops *ops;
    float x = 1.0f;

    TEST_ASSERT_EQUAL_INT(0, ops_cpu_open(refuse, NULL, &ops));
    TEST_ASSERT_EQUAL_INT(700, ops->fill(ops, NULL, &(struct op_fill){&x, OPS_F32, 1, 2.0f}));
    TEST_ASSERT_EQUAL_FLOAT(1.0f, x);
    ops->close(ops);
}

static void test_arguments_are_copied_and_captured_work_runs_at_every_launch(void)
{
    struct ops *ops;
    float x[2] = {1.0f, 1.0f};
    struct op_add twice = {&x[0], &x[0], &x[0], OPS_F32, 1};
    struct op_fill fill = {&x[1], OPS_F32, 1, 5.0f};

    queued_count = 0;
    TEST_ASSERT_EQUAL_INT(0, ops_cpu_open(keep, is_capturing, &ops));
    capturing = 1;
    TEST_ASSERT_EQUAL_INT(0, ops->add(ops, NULL, &twice));
    capturing = 0;
    TEST_ASSERT_EQUAL_INT(0, ops->fill(ops, NULL, &fill));
    memset(&twice, 0, sizeof(twice));
    memset(&fill, 0, sizeof(fill));
    TEST_ASSERT_EQUAL_FLOAT(1.0f, x[0]);
    for (int i = 0; i < 3; i++)
        queued[0].fn(queued[0].arg);
    queued[1].fn(queued[1].arg);
    TEST_ASSERT_EQUAL_FLOAT(8.0f, x[0]);
    TEST_ASSERT_EQUAL_FLOAT(5.0f, x[1]);
    ops->close(ops);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_item_is_visited_once);
    RUN_TEST(test_several_threads_may_run_loops_at_once);
    RUN_TEST(test_a_loop_inside_a_loop_ends);
    RUN_TEST(test_a_child_of_fork_has_threads_of_its_own);
    RUN_TEST(test_results_do_not_depend_on_the_number_of_threads);
    RUN_TEST(test_a_refused_launch_is_passed_on);
    RUN_TEST(test_arguments_are_copied_and_captured_work_runs_at_every_launch);
    return UNITY_END();
}
