/* fill_modes: the logic of fill.h. A block belongs to the thread that allocated it; the only shared state is
 * the barrier. */
#include "fill.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_BLOCKS  4096
#define MOST_GRAPHS  64
#define THREADS      8
#define EDGE_WORDS   16384 /* without --touch=all only the ends of a block are written and checked */
#define LEAST_BLOCK  ((size_t)64 << 10) /* below this the card counts as full */
#define LARGEST_PART 16                 /* the first blocks are up to this part of the total */

/* How long a program stays at its fullest, so that a watcher from outside (nvml_watch) sees it, also
 * on a busy machine. */
#define HOLD_NS 150000000

struct block {
    uintptr_t p;
    size_t words;
    uint32_t mark;
};

struct hoard {
    struct block blocks[MOST_BLOCKS];
    size_t count;
    size_t bytes, peak;
    long refused;     /* calls answered with out of memory */
    long other_codes; /* calls answered with anything else but success */
    long wrong;       /* blocks whose bytes were not what was written */
    uint32_t seed;
};

static const struct fill_api *cuda;
static bool touch_all;
static pthread_barrier_t together;

static uint32_t next_random(struct hoard *h)
{
    h->seed = h->seed * 1664525u + 1013904223u;
    return h->seed >> 8;
}

static void note(struct hoard *h, int rc)
{
    if (rc == FILL_OUT_OF_MEMORY)
        h->refused++;
    else if (rc)
        h->other_codes++;
}

static void write_ends(struct hoard *h, const struct block *b)
{
    size_t edge = b->words < EDGE_WORDS ? b->words : EDGE_WORDS;
    if (touch_all) {
        note(h, cuda->set(b->p, b->mark, b->words));
        return;
    }
    note(h, cuda->set(b->p, b->mark, edge));
    note(h, cuda->set(b->p + (b->words - edge) * 4, b->mark, edge));
}

static bool part_is_right(const struct block *b, size_t from, size_t words)
{
    static _Thread_local uint32_t copy[EDGE_WORDS];
    if (cuda->read(copy, b->p + from * 4, words))
        return false;
    for (size_t i = 0; i < words; i++) {
        if (copy[i] != b->mark)
            return false;
    }
    return true;
}

static void check(struct hoard *h, const struct block *b)
{
    size_t edge = b->words < EDGE_WORDS ? b->words : EDGE_WORDS;
    bool right = part_is_right(b, 0, edge) && part_is_right(b, b->words - edge, edge);
    for (size_t at = edge; touch_all && right && at + EDGE_WORDS < b->words; at += 64 * (size_t)EDGE_WORDS)
        right = part_is_right(b, at, EDGE_WORDS);
    h->wrong += !right;
}

static bool take(struct hoard *h, size_t bytes)
{
    struct block b = {.words = bytes / 4, .mark = (uint32_t)(h->count + 1) * 2654435761u ^ h->seed};
    if (h->count == MOST_BLOCKS || !b.words)
        return false;
    int rc = cuda->alloc(&b.p, b.words * 4);
    note(h, rc);
    if (rc)
        return false;
    write_ends(h, &b);
    h->blocks[h->count++] = b;
    h->bytes += b.words * 4;
    if (h->bytes > h->peak)
        h->peak = h->bytes;
    return true;
}

static void give(struct hoard *h, size_t i)
{
    check(h, &h->blocks[i]);
    note(h, cuda->release(h->blocks[i].p));
    h->bytes -= h->blocks[i].words * 4;
    h->blocks[i] = h->blocks[--h->count];
}

/* Blocks of varied sizes until even a small one is refused. */
static void take_all(struct hoard *h, size_t largest)
{
    while (largest >= LEAST_BLOCK && h->count < MOST_BLOCKS) {
        size_t bytes = largest / 2 + next_random(h) % (largest / 2) + 1;
        if (!take(h, bytes))
            largest /= 2;
    }
}

static void give_every_second(struct hoard *h)
{
    for (size_t i = h->count; i-- > 0;) {
        if (i % 2)
            give(h, i);
    }
}

static void give_all(struct hoard *h)
{
    while (h->count)
        give(h, h->count - 1);
}

static void hold(void)
{
    nanosleep(&(struct timespec){.tv_nsec = HOLD_NS}, NULL);
}

static int report(const struct hoard *h, size_t total)
{
    printf("peak_bytes=%zu\nrefused=%ld\nother_codes=%ld\nwrong_blocks=%ld\n", h->peak, h->refused,
           h->other_codes, h->wrong);
    bool held = h->peak <= total && !h->other_codes && !h->wrong;
    printf("held=%s\n", held ? "yes" : "no");
    return held ? 0 : 1;
}

static int mode_fill(size_t total)
{
    struct hoard *h = calloc(1, sizeof(*h));
    const int rounds = 3;
    h->seed = 1;
    for (int i = 0; i < rounds; i++) {
        take_all(h, total / LARGEST_PART);
        printf("round_%d_bytes=%zu\n", i, h->bytes);
        hold();
        give_every_second(h);
    }
    give_all(h);
    if (!h->refused)
        h->other_codes++; /* never refused: the cap did not hold, or there were too many blocks */
    int status = report(h, total);
    free(h);
    return status;
}

/* Allocates all that is reported as free in one block, then asks for one byte more, and goes on. */
static int mode_greedy(size_t total)
{
    size_t free_bytes = 0, now = 0;
    struct hoard *h = calloc(1, sizeof(*h));
    uintptr_t p = 0;
    h->seed = 2;
    note(h, cuda->info(&free_bytes, &now));
    int over_total = cuda->alloc(&p, total + 1);
    int all = cuda->alloc(&p, free_bytes);
    printf("over_total_code=%d\ngreedy_code=%d\ngreedy_bytes=%zu\n", over_total, all, free_bytes);
    if (!all) {
        struct block b = {.p = p, .words = free_bytes / 4, .mark = 0xfeedbeef};
        write_ends(h, &b);
        check(h, &b);
        int more = cuda->alloc(&p, (size_t)64 << 20);
        printf("more_code=%d\n", more);
        h->other_codes += more != FILL_OUT_OF_MEMORY;
        hold();
        note(h, cuda->release(b.p));
        h->peak = free_bytes;
    }
    h->other_codes += all != 0 || over_total != FILL_OUT_OF_MEMORY;
    take(h, (size_t)1 << 20);
    h->other_codes += h->count != 1;
    give_all(h);
    int status = report(h, total);
    free(h);
    return status;
}

static void *racer(void *arg)
{
    struct hoard *h = arg;
    size_t free_bytes = 0, total = 0;
    note(h, cuda->start());
    note(h, cuda->info(&free_bytes, &total));
    pthread_barrier_wait(&together);
    take_all(h, total / LARGEST_PART / THREADS * 2);
    pthread_barrier_wait(&together); /* now all hold what they got */
    pthread_barrier_wait(&together);
    give_every_second(h);
    take_all(h, total / LARGEST_PART / THREADS);
    give_all(h);
    return NULL;
}

static int mode_threads(size_t total)
{
    struct hoard *all = calloc(THREADS, sizeof(*all)), sum = {.count = 0};
    pthread_t thread[THREADS];
    size_t together_bytes = 0;
    pthread_barrier_init(&together, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        all[i].seed = (uint32_t)(i + 10);
        if (pthread_create(&thread[i], NULL, racer, &all[i]))
            abort();
    }
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    for (int i = 0; i < THREADS; i++)
        together_bytes += all[i].bytes;
    hold();
    pthread_barrier_wait(&together);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        sum.refused += all[i].refused;
        sum.other_codes += all[i].other_codes;
        sum.wrong += all[i].wrong;
    }
    sum.peak = together_bytes;
    if (!sum.refused)
        sum.other_codes++;
    int status = report(&sum, total);
    free(all);
    return status;
}

/* Graphs that allocate, each half as large again as the one before, up to twice the card; they stay, beside
 * blocks that take the rest, and run again. */
struct graphs {
    struct fill_graph items[MOST_GRAPHS];
    unsigned char bytes[MOST_GRAPHS];
    size_t count;
    long ran;
    uintptr_t out;
};

static void run_graph(struct hoard *h, struct graphs *g, size_t i)
{
    struct block b = {.p = g->out, .words = EDGE_WORDS, .mark = g->bytes[i] * 0x01010101u};
    int rc = cuda->graph_run(&g->items[i]);
    note(h, rc);
    g->ran += !rc;
    if (!rc)
        h->wrong += !part_is_right(&b, 0, EDGE_WORDS);
}

static void add_graph(struct hoard *h, struct graphs *g, size_t bytes)
{
    if (g->count == MOST_GRAPHS)
        return;
    g->bytes[g->count] = (unsigned char)(g->count + 1);
    int rc = cuda->graph_make(&g->items[g->count], bytes, g->bytes[g->count], g->out, EDGE_WORDS);
    note(h, rc);
    if (rc) {
        note(h, cuda->graph_end(&g->items[g->count]));
        return;
    }
    const long before = g->ran;
    run_graph(h, g, g->count++);
    if (g->ran > before && bytes > h->peak)
        h->peak = bytes;
}

static void run_graphs(struct hoard *h, struct graphs *g)
{
    for (size_t i = g->count; i-- > 0;)
        run_graph(h, g, i);
}

static void end_graphs(struct hoard *h, struct graphs *g)
{
    while (g->count)
        note(h, cuda->graph_end(&g->items[--g->count]));
}

static int mode_graph(size_t total)
{
    struct hoard *h = calloc(1, sizeof(*h));
    struct graphs g = {.count = 0};
    h->seed = 3;
    note(h, cuda->alloc(&g.out, EDGE_WORDS * sizeof(uint32_t)));
    for (size_t bytes = total / LARGEST_PART; bytes <= 2 * total; bytes += bytes / 2)
        add_graph(h, &g, bytes);
    printf("graphs=%zu\ngraphs_ran=%ld\nlargest_graph=%zu\n", g.count, g.ran, h->peak);
    hold();
    h->other_codes += !h->refused || !g.ran; /* the largest cannot, the smallest must */
    run_graphs(h, &g);
    take_all(h, total / LARGEST_PART);
    hold();
    run_graphs(h, &g);
    hold();
    give_every_second(h);
    run_graphs(h, &g);
    give_all(h);
    end_graphs(h, &g);
    g.ran = 0;
    add_graph(h, &g, total / LARGEST_PART);
    h->other_codes += g.ran != 1;
    end_graphs(h, &g);
    note(h, cuda->release(g.out));
    int status = report(h, total);
    free(h);
    return status;
}

int fill_main(int argc, char **argv, const struct fill_api *api)
{
    const char *mode = "fill";
    size_t free_bytes = 0, total = 0;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--mode=", 7))
            mode = argv[i] + 7;
        else if (!strcmp(argv[i], "--touch=all"))
            touch_all = true;
        else {
            fprintf(stderr, "usage: %s [--mode=fill|greedy|threads|graph] [--touch=all]\n", argv[0]);
            return 2;
        }
    }
    cuda = api;
    int rc = cuda->start();
    if (!rc)
        rc = cuda->info(&free_bytes, &total);
    if (rc) {
        printf("start_code=%d\n", rc);
        return rc == FILL_NO_DRIVER ? FILL_NO_DRIVER : 1;
    }
    printf("api=%s\nmode=%s\ntotal=%zu\nfree_at_start=%zu\n", api->name, mode, total, free_bytes);
    if (!strcmp(mode, "greedy"))
        return mode_greedy(total);
    if (!strcmp(mode, "graph"))
        return mode_graph(total);
    return strcmp(mode, "threads") ? mode_fill(total) : mode_threads(total);
}
