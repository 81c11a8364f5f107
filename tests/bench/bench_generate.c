/* bench_generate: programs whose sizes vary (bench_families). Writes one as a trace for bench_replay, or runs
 * many, and traces, through the pool over a fake driver and prints what they need. No device is used, and no
 * time is measured: the same in every run and on every machine.
 *
 * A line per program and trace:
 *   utilization   peak of live bytes / peak of held bytes, with the room of an H200
 *   expandable    the same for a model of PyTorch's expandable segments
 *   cost          driver calls with room x their price on an H200 / the program's nominal time, growth to the
 *                 peak aside
 *   growth_cost   the same for growth to the peak
 *   growth ...    those calls: handles created for growth, mapped again, created again, unmapped, released
 *   smallest      the least capacity that completes / peak of live bytes
 *   tight_cost    as cost, with a capacity of TIGHT permille of the peak of live bytes
 * and at the end, as summary lines for bench_docs, the worst and the median of each trace, of each family and
 * of all families: held (in terms of what expandable segments hold), cost and growth_cost in percent, and
 * smallest; with the number of programs above the project's aims. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cuda.h"
#include "bench_expandable.h"
#include "bench_families.h"
#include "bench_trace.h"
#include "tests/unit/interpose/engine_price.h"

#define TIGHT         1020
#define HELD_MOST     1.0 /* the project's aims */
#define COST_MOST     0.01
#define SMALLEST_MOST 1.02

static const char usage[] =
    "usage: bench_generate --family=NAME [--seed=N]    writes a trace\n"
    "       bench_generate --list                      names the families\n"
    "       bench_generate --table=SEEDS [--family=NAME] [--seed=FIRST] [--quick] [TRACE[:SECONDS]...]\n"
    "                                                  runs so many programs of each family, and traces;\n"
    "                                                  SECONDS: how long the traced program took\n"
    "  --quick   does not look for the smallest capacity\n";

struct row {
    double utilization, expandable, held, cost, growth_cost, smallest, tight_cost; /* 0: not known */
};

struct rows {
    struct row *rows;
    uint64_t count;
};

static void write_trace(const struct program *program)
{
    for (uint64_t i = 0; i < program->count; i++) {
        const struct program_event *event = &program->events[i];

        if (event->bytes)
            printf("a %" PRIu32 " %" PRIu64 " 0\n", event->id, event->bytes);
        else
            printf("f %" PRIu32 "\n", event->id);
    }
}

/* ---- the table ---- */

/* `seconds`: 0 if not known. Then costs are in seconds, and no memory goes back because it is idle. */
static struct row run_program(const struct program *program, double seconds, bool quick)
{
    const double live = (double)program->peak_live, of = seconds > 0 ? seconds : 1;
    const uint64_t little = program->peak_live / 1000 * TIGHT / PRICE_PAGE * PRICE_PAGE;
    const struct price room = price_run(program, PRICE_ROOM, seconds);
    const double expandable = (double)expandable_held(program);
    struct row row = {.utilization = live / (double)room.peak_physical,
                      .expandable = live / expandable,
                      .held = (double)room.peak_physical / expandable,
                      .cost = price_seconds(&room) / of,
                      .growth_cost = price_growth(&room) / of};

    printf(" growth=%" PRIu64 " moved=%" PRIu64 " recreated=%" PRIu64 " unmapped=%" PRIu64
           " released=%" PRIu64,
           room.growth, room.mapped - room.created, room.created - room.growth, room.unmapped, room.released);
    if (!room.completes)
        bench_fail("a program needs more than the card has");
    if (quick)
        return row;
    const struct price tight = price_run(program, little, seconds);
    row.smallest = (double)price_smallest(program) / live;
    row.tight_cost = tight.completes ? price_seconds(&tight) / of : 0;
    return row;
}

static void print_row(const struct row *row)
{
    printf(" utilization=%.4f expandable=%.4f", row->utilization, row->expandable);
    if (row->cost > 0)
        printf(" cost=%.3f%% growth_cost=%.3f%%", 100 * row->cost, 100 * row->growth_cost);
    if (row->smallest > 0)
        printf(" smallest=%.4f", row->smallest);
    if (row->tight_cost > 0)
        printf(" tight_cost=%.3f%%", 100 * row->tight_cost);
    if (row->held > HELD_MOST)
        printf(" over_held");
    if (row->cost > COST_MOST)
        printf(" over_cost");
    if (row->smallest > SMALLEST_MOST)
        printf(" over_smallest");
    putchar('\n');
    fflush(stdout);
}

static void add_row(struct rows *rows, const struct row *row)
{
    rows->rows = realloc(rows->rows, (rows->count + 1) * sizeof(*rows->rows));
    if (!rows->rows)
        bench_fail("no memory");
    rows->rows[rows->count++] = *row;
}

static void run_families(struct rows *rows, unsigned family, uint64_t from, uint64_t seeds, bool quick)
{
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        struct program program;

        families_write(family, seed, &program);
        const double seconds = families_seconds(family, &program);
        printf("program=%s seed=%" PRIu64 " events=%" PRIu64 " peak_live=%" PRIu64 " seconds=%.2f",
               families_name(family), seed, program.count, program.peak_live, seconds);
        fflush(stdout);
        const struct row row = run_program(&program, seconds, quick);
        print_row(&row);
        add_row(rows, &row);
        program_forget(&program);
    }
}

static void print_summary(const char *name, const struct rows *rows);

/* A trace does not tell how long its program took: if that is not given, costs are printed in milliseconds
 * and are not in the summary. */
static void run_trace(char *path, bool quick)
{
    char *colon = strrchr(path, ':');
    const double seconds = colon ? strtod(colon + 1, NULL) : 0;
    struct program program = {0};
    struct rows rows = {0};
    struct trace trace;

    if (colon)
        *colon = '\0';
    trace_read(&trace, path);
    uint32_t *ids = calloc(trace.blocks, sizeof(*ids));
    if (!ids)
        bench_fail("no memory");
    for (uint64_t i = 0; i < trace.count; i++) {
        const struct trace_event *event = &trace.events[i];

        if (event->bytes)
            ids[event->block] = program_alloc(&program, event->bytes);
        else
            program_free(&program, ids[event->block]);
    }
    printf("trace=%s events=%" PRIu64 " peak_live=%" PRIu64, trace.name, program.count, program.peak_live);
    struct row row = run_program(&program, seconds, quick);
    if (!colon) {
        printf(" cost_ms=%.1f growth_cost_ms=%.1f tight_cost_ms=%.1f", 1000 * row.cost,
               1000 * row.growth_cost, 1000 * row.tight_cost);
        row.cost = row.growth_cost = row.tight_cost = 0;
    }
    print_row(&row);
    add_row(&rows, &row);
    print_summary(trace.name, &rows);
    free(rows.rows);
    free(ids);
    program_forget(&program);
    trace_close(&trace);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Prints the worst, which is the largest, and the median of one column, unless it is not known. */
static void print_column(const char *name, const struct rows *rows, size_t offset, double unit)
{
    double *values = calloc(rows->count, sizeof(*values));

    if (!values)
        bench_fail("no memory");
    for (uint64_t i = 0; i < rows->count; i++)
        memcpy(&values[i], (const char *)&rows->rows[i] + offset, sizeof(*values));
    qsort(values, rows->count, sizeof(*values), by_value);
    if (values[rows->count - 1] > 0)
        printf(" %s_worst=%.4f %s_median=%.4f", name, unit * values[rows->count - 1], name,
               unit * values[rows->count / 2]);
    else
        printf(" %s_worst=- %s_median=-", name, name);
    free(values);
}

static void print_summary(const char *name, const struct rows *rows)
{
    uint64_t held = 0, dear = 0, large = 0;

    for (uint64_t i = 0; i < rows->count; i++) {
        held += rows->rows[i].held > HELD_MOST;
        dear += rows->rows[i].cost > COST_MOST;
        large += rows->rows[i].smallest > SMALLEST_MOST;
    }
    printf("summary=%s programs=%" PRIu64, name, rows->count);
    print_column("held", rows, offsetof(struct row, held), 1);
    print_column("cost", rows, offsetof(struct row, cost), 100);
    print_column("growth_cost", rows, offsetof(struct row, growth_cost), 100);
    print_column("smallest", rows, offsetof(struct row, smallest), 1);
    printf(" over_held=%" PRIu64 " over_cost=%" PRIu64 " over_smallest=%" PRIu64 "\n", held, dear, large);
    fflush(stdout);
}

/* `family`: -1 for all. */
static void print_table(int family, uint64_t from, uint64_t seeds, bool quick)
{
    struct rows all = {0};

    for (unsigned f = 0; f < families_count(); f++) {
        struct rows rows = {0};

        if (family >= 0 && f != (unsigned)family)
            continue;
        run_families(&rows, f, from, seeds, quick);
        print_summary(families_name(f), &rows);
        for (uint64_t i = 0; i < rows.count; i++)
            add_row(&all, &rows.rows[i]);
        free(rows.rows);
    }
    print_summary("all", &all);
    free(all.rows);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"family", required_argument, NULL, 'f'},
        {"seed", required_argument, NULL, 's'},
        {"table", required_argument, NULL, 't'},
        {"quick", no_argument, NULL, 'q'},
        {"list", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    uint64_t seed = 1, seeds = 0;
    int option, family = -1;
    bool quick = false, table = false;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'f':
            family = families_find(optarg);
            if (family < 0)
                bench_fail("\"%s\" is no family: see --list", optarg);
            break;
        case 's':
            seed = bench_bytes(optarg);
            break;
        case 't':
            table = true;
            seeds = bench_bytes(optarg);
            break;
        case 'q':
            quick = true;
            break;
        case 'l':
            for (unsigned f = 0; f < families_count(); f++)
                puts(families_name(f));
            return 0;
        default:
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : 2;
        }
    }
    if (!table && family < 0) {
        fputs(usage, stderr);
        return 2;
    }
    if (!table) {
        struct program program;

        families_write((unsigned)family, seed, &program);
        write_trace(&program);
        program_forget(&program);
        return 0;
    }
    for (int i = optind; i < argc; i++)
        run_trace(argv[i], quick);
    if (seeds)
        print_table(family, seed, seeds, quick);
    return 0;
}
