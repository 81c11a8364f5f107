/* Sums over a profile's steps. Pure, but for host memory. */
#include <stdlib.h>
#include <string.h>

#include "harness/profile/profile_state.h"

static uint64_t length_of(const struct profile_span *span)
{
    return span->end_ns > span->begin_ns ? span->end_ns - span->begin_ns : 0;
}

/* Orders by pass, operation and layer. */
static int by_kind(const void *a, const void *b)
{
    const struct profile_span *x = *(const struct profile_span *const *)a;
    const struct profile_span *y = *(const struct profile_span *const *)b;
    int names = strcmp(x->operation, y->operation);

    if (x->place.pass != y->place.pass)
        return x->place.pass < y->place.pass ? -1 : 1;
    if (names)
        return names;
    return (x->place.layer > y->place.layer) - (x->place.layer < y->place.layer);
}

static int by_time(const void *a, const void *b)
{
    const struct profile_row *x = a, *y = b;

    return (x->ns < y->ns) - (x->ns > y->ns);
}

/* Adds up one layer's time and leaves *at behind it. */
static uint64_t sum_layer(const struct profile_span *const *spans, size_t count, size_t *at)
{
    const struct profile_span *first = spans[*at];
    uint64_t ns = 0;

    for (; *at < count && by_kind(&first, &spans[*at]) == 0; ++*at)
        ns += length_of(spans[*at]);
    return ns;
}

static void make_rows(struct profile_sums *sums, const struct profile_span *const *spans, size_t count)
{
    struct profile_row *row = NULL;
    uint64_t most = 0;

    for (size_t at = 0; at < count;) {
        const struct profile_span *first = spans[at];
        size_t from = at;
        uint64_t ns = sum_layer(spans, count, &at);

        if (!row || row->pass != first->place.pass || strcmp(row->operation, first->operation) != 0) {
            row = &sums->rows[sums->row_count++];
            *row = (struct profile_row){
                .pass = first->place.pass, .operation = first->operation, .layer = first->place.layer};
            most = 0;
        }
        row->ns += ns;
        row->calls += at - from;
        row->layer = ns > most ? first->place.layer : row->layer;
        most = ns > most ? ns : most;
    }
    qsort(sums->rows, sums->row_count, sizeof(*sums->rows), by_time);
}

/* Returns the part of an average between the first and the last operation of the step's backward pass. */
static uint64_t hidden(const struct profile *profile, const struct profile_step *step,
                       const struct profile_span *average)
{
    uint64_t begin = UINT64_MAX, end = 0;

    for (size_t i = step->first; i < step->first + step->count; i++) {
        const struct profile_span *span = &profile->spans[i];

        if (span->bucket != PROFILE_NO_BUCKET || span->place.pass != PASS_BACKWARD)
            continue;
        begin = span->begin_ns < begin ? span->begin_ns : begin;
        end = span->end_ns > end ? span->end_ns : end;
    }
    begin = average->begin_ns > begin ? average->begin_ns : begin;
    end = average->end_ns < end ? average->end_ns : end;
    return end > begin ? end - begin : 0;
}

static void sum_step(const struct profile *profile, const struct profile_step *step,
                     struct profile_sums *sums)
{
    uint64_t busy = 0, whole = step->end_ns - step->begin_ns;

    for (size_t i = step->first; i < step->first + step->count; i++) {
        const struct profile_span *span = &profile->spans[i];

        if (!sums->peak || profile_live(span) > profile_live(sums->peak)) {
            sums->peak = span;
            sums->peak_step = step;
        }
        if (span->bucket == PROFILE_NO_BUCKET) {
            sums->pass_ns[span->place.pass] += length_of(span);
            busy += span->aside ? 0 : length_of(span);
            continue;
        }
        sums->averages++;
        sums->average_ns += length_of(span);
        sums->hidden_ns += hidden(profile, step, span);
    }
    sums->steps_ns += whole;
    sums->idle_ns += whole > busy ? whole - busy : 0;
}

enum status profile_sum(const struct profile *profile, struct profile_sums *sums)
{
    const struct profile_span **spans = calloc(profile->span_count + 1, sizeof(*spans));
    size_t count = 0;

    *sums = (struct profile_sums){.rows = calloc(profile->span_count + 1, sizeof(*sums->rows))};
    if (!spans || !sums->rows) {
        free(spans);
        profile_sums_free(sums);
        return status_fail(STATUS_NO_MEMORY, "no host memory for the profile");
    }
    for (size_t i = 0; i < profile->span_count; i++)
        if (profile->spans[i].bucket == PROFILE_NO_BUCKET)
            spans[count++] = &profile->spans[i];
    qsort(spans, count, sizeof(*spans), by_kind);
    make_rows(sums, spans, count);
    for (size_t s = 0; s < profile->step_count; s++)
        sum_step(profile, &profile->steps[s], sums);
    free(spans);
    return STATUS_OK;
}

void profile_sums_free(struct profile_sums *sums)
{
    free(sums->rows);
    memset(sums, 0, sizeof(*sums));
}
