/* The pool with the allocations of training runs: how much of its memory do the blocks fill? Training-like
 * traces are made here; recorded ones are replayed, too, if GPUCAP_TRACES names a folder with *.trace.gz.
 *
 * A trace is text, `a ID BYTES STREAM` and `f ID`, in program order. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "tests/unit/interpose/apart.h"
#include "tests/unit/interpose/engine_model.h"

#define EVENTS_MAX (1U << 20)
#define LAG        500  /* pieces of work that a busy stream is behind */
#define WANTED     0.95 /* with room to spare: fewer moves are worth a little memory */
#define RECORDED   0.92 /* likewise, for recorded programs; expandable segments reach 0.88 to 0.98 */
#define PLENTY     (512 * GIB)
#define TIGHT      1020 /* permille of the peak of live bytes: nothing is refused with so much */

void setUp(void) {}

void tearDown(void) {}

struct event {
    uint64_t bytes; /* 0: a free */
    uint32_t id;
};

static struct event *events;
static size_t event_count;
static uint32_t ids;
static struct fake_random rng;
static struct model model; /* only its budget */

/* ---- traces ---- */

static uint32_t trace_alloc(uint64_t bytes)
{
    CHECK(event_count < EVENTS_MAX);
    events[event_count++] = (struct event){bytes, ids};
    return ids++;
}

static void trace_free(uint32_t id)
{
    CHECK(event_count < EVENTS_MAX);
    events[event_count++] = (struct event){0, id};
}

/* A network of layers, each with weights, gradients that come and go, and activations that grow with the
 * batch. */
struct network {
    unsigned layers, steps;
    uint64_t weight, activation; /* bytes of a layer, of a layer and sample */
    unsigned batch_min, batch_max, validate_every;
};

#define LAYERS_MAX 128

static uint64_t vary(uint64_t bytes)
{
    return bytes / 2 + fake_below(&rng, bytes);
}

static void forward_and_back(const struct network *net, const uint64_t *sizes, uint64_t batch, bool train)
{
    uint32_t kept[LAYERS_MAX], gradients[LAYERS_MAX];

    for (unsigned i = 0; i < net->layers; i++) {
        const uint32_t workspace = trace_alloc(vary(8 * MIB));

        kept[i] = trace_alloc(sizes[i] * batch);
        trace_free(workspace);
        if (!train && i)
            trace_free(kept[i - 1]);
    }
    if (!train) {
        trace_free(kept[net->layers - 1]);
        return;
    }
    for (unsigned i = net->layers; i-- > 0;) {
        const uint32_t flow = trace_alloc(sizes[i] * batch);

        gradients[i] = trace_alloc(net->weight);
        trace_free(kept[i]);
        trace_free(flow);
    }
    for (unsigned i = 0; i < net->layers; i++)
        trace_free(gradients[i]);
}

static void make_trace(const struct network *net)
{
    uint64_t sizes[LAYERS_MAX];

    event_count = ids = 0;
    for (unsigned i = 0; i < net->layers; i++) {
        sizes[i] = vary(net->activation);
        for (int state = 0; state < 3; state++)
            trace_alloc(net->weight);
        for (int small = 0; small < 4; small++)
            trace_alloc(1 + fake_below(&rng, 16384));
    }
    for (unsigned step = 0; step < net->steps; step++) {
        const uint64_t batch = net->batch_min + fake_below(&rng, net->batch_max - net->batch_min + 1);

        forward_and_back(net, sizes, batch, true);
        if (step % net->validate_every == net->validate_every - 1)
            forward_and_back(net, sizes, 2 * net->batch_max, false);
    }
}

static bool read_trace(const char *path)
{
    char command[1024], line[128];

    snprintf(command, sizeof(command), "gzip -dc '%s'", path);
    FILE *file = popen(command, "r");
    event_count = ids = 0;
    while (file && fgets(line, sizeof(line), file)) {
        unsigned id;
        uint64_t bytes;

        if (sscanf(line, "a %u %lu", &id, &bytes) == 2) {
            ids = id;
            trace_alloc(bytes);
        } else if (sscanf(line, "f %u", &id) == 1) {
            trace_free(id);
        }
    }
    return file && pclose(file) == 0 && event_count > 0;
}

/* ---- replay ---- */

enum manner { AT_ONCE, BEHIND_WORK, BEHIND_STREAMS };

/* The block is used by a stream that lags; behind streams: now and then by a second one. */
static void work_on(enum manner manner, uint64_t address, uint64_t bytes, uint32_t id)
{
    const unsigned stream = manner == BEHIND_STREAMS && id % 16 == 0;

    const bool foreign = streams_submit_begin(model_stream(stream));
    fake_work(stream, address, bytes, id + 1);
    if (foreign)
        streams_submit_end();
    for (unsigned s = 0; s < 2; s++) {
        const bool keeps_up = s ? id % 16 == 1 : id % 10 != 0; /* not quite */

        if (keeps_up || fake_backlog(s) > LAG)
            fake_progress(s);
    }
}

static uint64_t moved_chunks; /* in the last replay */

static uint64_t peak_live(void)
{
    uint64_t *sizes = calloc(EVENTS_MAX, sizeof(*sizes)), live = 0, peak = 0;

    CHECK(sizes);
    for (size_t i = 0; i < event_count; i++) {
        uint64_t *size = &sizes[events[i].id];

        *size = events[i].bytes ? events[i].bytes : *size;
        live = events[i].bytes ? live + *size : live - *size;
        peak = live > peak ? live : peak;
    }
    free(sizes);
    return peak;
}

/* Returns utilization. */
static double replay(enum manner manner, uint64_t allowed)
{
    uint64_t *addresses = calloc(EVENTS_MAX, 2 * sizeof(*addresses)), *sizes = addresses + EVENTS_MAX;
    uint64_t live = 0, peak = 0;

    CHECK(addresses);
    model_open(&model, allowed, allowed);
    for (size_t i = 0; i < event_count; i++) {
        const uint32_t id = events[i].id;

        if (!events[i].bytes) {
            CHECK(pool_free(&model.pool, addresses[id], manner == AT_ONCE) == 0);
            live -= sizes[id];
            continue;
        }
        sizes[id] = events[i].bytes;
        CHECK(pool_alloc(&model.pool, sizes[id], &addresses[id]) == 0);
        live += sizes[id];
        peak = live > peak ? live : peak;
        if (manner != AT_ONCE)
            work_on(manner, addresses[id], sizes[id], id);
    }
    CHECK(pool_check(&model.pool) == NULL);
    const struct pool_stats s = pool_stats(&model.pool);
    const double utilization = (double)peak / (double)s.peak_physical;
    printf("events=%zu live_mib=%lu physical_mib=%lu utilization=%.4f joins=%lu hits=%lu stitches=%lu "
           "chunks=%lu grows=%lu waits=%lu calls=%lu\n",
           event_count, peak / MIB, s.peak_physical / MIB, utilization, s.joins, s.hits, s.stitches,
           s.stitched_chunks, s.grows, s.waits, s.driver_calls);
    moved_chunks = s.stitched_chunks;
    while (fake_progress(0) || fake_progress(1))
        ;
    pool_close(&model.pool, true);
    fake_end();
    free(addresses);
    fflush(stdout);
    return utilization;
}

static const struct network networks[] = {
    {50, 60, 2 * MIB, MIB, 32, 128, 15},
    {24, 100, 28 * MIB, 3 * MIB, 4, 32, 10},
    {100, 30, 300 * 1024, 700 * 1024, 16, 64, 7},
};

static void replay_made(enum manner manner)
{
    for (size_t i = 0; i < sizeof(networks) / sizeof(*networks); i++) {
        make_trace(&networks[i]);
        CHECK(replay(manner, PLENTY) >= WANTED);
    }
}

static void test_blocks_fill_what_is_held_on_training_like_traces(void)
{
    replay_made(AT_ONCE);
}

static void made_behind_work(void)
{
    replay_made(BEHIND_WORK);
}

static void made_behind_streams(void)
{
    replay_made(BEHIND_STREAMS);
}

/* What is not usable yet must not make blocks go where they break what others need: a chunk that has to move
 * costs more than a join. Of one network the number is a matter of luck, so all of them count together. */
static void test_streams_that_lag_hardly_make_more_chunks_move(void)
{
    uint64_t in_order = 0, lagging = 0;

    for (size_t i = 0; i < sizeof(networks) / sizeof(*networks); i++) {
        make_trace(&networks[i]);
        const uint64_t tight = peak_live() / 1000 * TIGHT & ~(RANGES_PAGE - 1);
        replay(AT_ONCE, tight);
        in_order += moved_chunks;
        replay(BEHIND_STREAMS, tight);
        lagging += moved_chunks;
    }
    CHECK(in_order > 0 && lagging <= in_order + in_order / 2);
}

static void test_blocks_fill_what_is_held_also_behind_a_lagging_stream(void)
{
    TEST_ASSERT_TRUE(fake_child(made_behind_work));
    TEST_ASSERT_TRUE(fake_child(made_behind_streams));
}

static enum manner recorded_manner;

static void replay_recorded(void)
{
    const char *folder = getenv("GPUCAP_TRACES");
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[512];
    int replayed = 0;

    CHECK(dir);
    while ((entry = readdir(dir))) {
        if (!strstr(entry->d_name, ".trace.gz"))
            continue;
        snprintf(path, sizeof(path), "%s/%.200s", folder, entry->d_name);
        CHECK(read_trace(path));
        printf("trace=%s ", entry->d_name);
        CHECK(replay(recorded_manner, PLENTY) >= RECORDED);
        replayed++;
    }
    closedir(dir);
    CHECK(replayed > 0);
}

static void test_blocks_fill_what_is_held_on_recorded_traces(void)
{
    if (!getenv("GPUCAP_TRACES"))
        TEST_IGNORE_MESSAGE("GPUCAP_TRACES names no folder");
    recorded_manner = AT_ONCE;
    TEST_ASSERT_TRUE(fake_child(replay_recorded));
    recorded_manner = BEHIND_WORK;
    TEST_ASSERT_TRUE(fake_child(replay_recorded));
    recorded_manner = BEHIND_STREAMS;
    TEST_ASSERT_TRUE(fake_child(replay_recorded));
}

int main(void)
{
    events = calloc(EVENTS_MAX, sizeof(*events));
    UNITY_BEGIN();
    RUN_APART(test_blocks_fill_what_is_held_on_training_like_traces);
    RUN_TEST(test_blocks_fill_what_is_held_also_behind_a_lagging_stream);
    RUN_APART(test_streams_that_lag_hardly_make_more_chunks_move);
    RUN_TEST(test_blocks_fill_what_is_held_on_recorded_traces);
    free(events);
    return UNITY_END();
}
