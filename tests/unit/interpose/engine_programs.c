/* The pool under programs that repeat a step with blocks of a few sizes, as trainings do: with little more
 * than they need they are never refused, and blocks fill what they hold. Random programs, the same in every
 * run. Few blocks are small, because small blocks would hide the cost of chunks. */
#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#include <unity.h>

#define PROGRAMS  600
#define PERIODS   60
#define SLOTS_MAX 16
#define STEPS_MAX 64
#define KEPT_MAX  2
/* Utilization. With plenty a pool moves few chunks: it holds what it would without any. */
#define WANTED_TIGHT  0.98
#define WANTED_PLENTY 0.97

static struct model model;

void setUp(void) {}

void tearDown(void) {}

/* A step allocates into a slot, or frees what is there. */
struct step {
    unsigned slot;
    uint64_t bytes; /* 0: frees */
};

struct program {
    struct step steps[STEPS_MAX];
    unsigned count;
    uint64_t kept[KEPT_MAX]; /* allocated after the first periods, and never freed */
    unsigned kept_count;
    uint64_t peak; /* bytes */
};

enum kind { EVEN, POWERS, UNEVEN, MIXED, KINDS };

static uint64_t size_of(struct fake_random *random, enum kind kind)
{
    if (kind == EVEN)
        return (1 + fake_below(random, 512)) * MIB;
    if (kind == POWERS)
        return MIB << fake_below(random, 10);
    if (kind == UNEVEN)
        return 512 * (1 + fake_below(random, GIB / 512));
    return fake_below(random, 3) ? (2 + fake_below(random, 30)) * MIB : (100 + fake_below(random, 900)) * MIB;
}

static void write_program(struct fake_random *random, struct program *program)
{
    const enum kind kind = (enum kind)fake_below(random, KINDS);
    const unsigned sizes = 2 + (unsigned)fake_below(random, 5), slots = 2 + (unsigned)fake_below(random, 12);
    const unsigned steps = 4 + (unsigned)fake_below(random, 40);
    uint64_t size[8], live[SLOTS_MAX] = {0}, now = 0;

    *program = (struct program){.kept_count = (unsigned)fake_below(random, KEPT_MAX + 1)};
    for (unsigned i = 0; i < sizes; i++)
        size[i] = size_of(random, kind);
    for (unsigned i = 0; i < steps; i++) {
        const unsigned slot = (unsigned)fake_below(random, slots);
        const uint64_t bytes = live[slot] ? 0 : size[fake_below(random, sizes)];

        program->steps[program->count++] = (struct step){slot, bytes};
        now += bytes - live[slot];
        live[slot] = bytes;
        program->peak = now > program->peak ? now : program->peak;
    }
    for (unsigned slot = slots; slot-- > 0;) {
        if (live[slot])
            program->steps[program->count++] = (struct step){slot, 0};
    }
    for (unsigned i = 0; i < program->kept_count; i++)
        program->peak += program->kept[i] = size_of(random, kind);
}

/* Runs it with so much memory; nothing may be refused. What it holds at most is added to *held. */
static void run_program(const struct program *program, uint64_t allowed, double *held)
{
    uint64_t slots[SLOTS_MAX] = {0}, address;

    model_open(&model, 64 * GIB, allowed);
    for (unsigned period = 0; period < PERIODS; period++) {
        for (unsigned i = 0; i < program->count; i++) {
            const struct step *step = &program->steps[i];

            if (step->bytes)
                CHECK(pool_alloc(&model.pool, step->bytes, &slots[step->slot]) == 0);
            else
                CHECK(pool_free(&model.pool, slots[step->slot], true) == 0);
            if (i % 4 == 0)
                pool_sweep(&model.pool);
        }
        if (period < program->kept_count)
            CHECK(pool_alloc(&model.pool, program->kept[period], &address) == 0);
    }
    CHECK(pool_check(&model.pool) == NULL);
    *held += (double)pool_stats(&model.pool).peak_physical;
    pool_close(&model.pool, true);
    fake_end();
}

static void run_all(bool tight)
{
    const uint64_t programs = PROGRAMS * fake_number("GPUCAP_TEST_TIMES", 1);
    struct fake_random random = {.state = 1};
    struct program program;
    double held = 0, live = 0;

    for (uint64_t i = 0; i < programs; i++) {
        write_program(&random, &program);
        const uint64_t little = program.peak + program.peak / 50 + 16 * MIB;
        run_program(&program, tight ? little & ~(RANGES_PAGE - 1) : 64 * GIB, &held);
        live += (double)program.peak;
    }
    printf("programs=%lu utilization=%.4f\n", programs, live / held);
    fflush(stdout);
    CHECK(live / held >= (tight ? WANTED_TIGHT : WANTED_PLENTY));
}

static void test_hardly_more_memory_than_a_program_needs_is_enough(void)
{
    run_all(true);
}

static void test_blocks_fill_what_is_held_where_there_is_plenty(void)
{
    run_all(false);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_APART(test_hardly_more_memory_than_a_program_needs_is_enough);
    RUN_APART(test_blocks_fill_what_is_held_where_there_is_plenty);
    return UNITY_END();
}
