/* engine_price: counts the driver calls of a program through the pool, and what they cost on an H200. See
 * engine_price.h. */
#include "tests/unit/interpose/engine_price.h"

#include <stdlib.h>
#include <sys/wait.h>

#include "tests/unit/interpose/engine_model.h"

#define SWEEP_EVERY 1024 /* events: the library's helper thread sweeps from time to time */
#define DECAY       5.0  /* seconds: the default of the option */

/* Microseconds on an H200 with driver 580, measured for handles of 2 to 128 MiB: mapping is the price of a
 * second mapping, the other calls were made once for all handles. Larger handles cost more to release. */
static const struct {
    double create, map, access, unmap, release; /* each for one handle */
} prices = {.create = 10, .map = 1, .access = 25, .unmap = 16, .release = 20};

static struct model model;
static struct price counted;
static struct driver_table fakes;

static CUresult count_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                             const CUmemAllocationProp *properties, unsigned long long flags)
{
    const CUresult result = fakes.cuMemCreate(handle, bytes, properties, flags);

    if (result != CUDA_SUCCESS)
        return result;
    counted.created++;
    if (fake_physical() > counted.peak_physical) {
        counted.peak_physical = fake_physical();
        counted.growth++;
    }
    return result;
}

/* What decay.c does at the end of a period. */
static void end_period(struct pool *pool)
{
    const uint64_t idle = pool_idle_bytes(pool);

    if (idle)
        pool_trim(pool, idle);
}

static void replay(const struct program *program, uint64_t capacity, double seconds)
{
    uint64_t *addresses = calloc(program->ids, sizeof(*addresses)), i;
    const double periods = seconds / DECAY / (double)program->count; /* that pass in one event */

    CHECK(addresses);
    model_open(&model, capacity, capacity);
    fakes = driver_entries;
    driver_entries.cuMemCreate = count_create;
    model.pool.requested = 0;
    for (i = 0; i < program->count; i++) {
        const struct program_event *event = &program->events[i];

        if (!event->bytes)
            CHECK(pool_free(&model.pool, addresses[event->id], true) == 0);
        else if (pool_alloc(&model.pool, event->bytes, &addresses[event->id]))
            break;
        if (i % SWEEP_EVERY == 0)
            pool_sweep(&model.pool);
        if ((uint64_t)((double)(i + 1) * periods) > (uint64_t)((double)i * periods))
            end_period(&model.pool);
    }
    CHECK(pool_check(&model.pool) == NULL);
    counted.completes = i == program->count;
    counted.mapped = fake_count(FAKE_MAP); /* one handle each, as in all of these */
    counted.unmapped = fake_count(FAKE_UNMAP);
    counted.released = fake_count(FAKE_RELEASE);
    free(addresses);
}

struct price price_run(const struct program *program, uint64_t capacity, double seconds)
{
    struct price price = {0};
    int ends[2], status;

    CHECK(pipe(ends) == 0);
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        replay(program, capacity, seconds);
        _exit(write(ends[1], &counted, sizeof(counted)) != sizeof(counted));
    }
    close(ends[1]);
    CHECK(read(ends[0], &price, sizeof(price)) == sizeof(price));
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return price;
}

double price_seconds(const struct price *price)
{
    const double again = (double)(price->created - price->growth);
    const double moved = (double)(price->mapped - price->growth);

    return (again * prices.create + moved * (prices.map + prices.access) +
            (double)price->unmapped * prices.unmap + (double)price->released * prices.release) /
           1e6;
}

double price_growth(const struct price *price)
{
    return (double)price->growth * (prices.create + prices.map + prices.access) / 1e6;
}

uint64_t price_smallest(const struct program *program)
{
    uint64_t low = program->peak_live / PRICE_PAGE, high = low + low / 50 + 1;

    while (!price_run(program, high * PRICE_PAGE, 0).completes) {
        low = high;
        high += high / 16 + 1;
    }
    while (high - low > 1) {
        const uint64_t middle = (low + high) / 2;

        if (price_run(program, middle * PRICE_PAGE, 0).completes)
            high = middle;
        else
            low = middle;
    }
    return high * PRICE_PAGE;
}
