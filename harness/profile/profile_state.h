/* The data of a profile. Only the files of this folder and their test include this. */
#ifndef HARNESS_PROFILE_STATE_H
#define HARNESS_PROFILE_STATE_H

#include "harness/model/names.h"
#include "harness/profile/profile.h"

enum { PROFILE_NAME_BYTES = NAMES_BYTES, PROFILE_NO_BUCKET = -1 };

/* An operation, or the average of a bucket. */
struct profile_span {
    const char *operation; /* the name in the table of operations */
    struct model_place place;
    bool aside;                  /* on another stream than the model's */
    int bucket;                  /* PROFILE_NO_BUCKET: an operation */
    size_t bytes;                /* of the bucket */
    size_t live[MEM_KIND_COUNT]; /* when it was queued */
    size_t held;                 /* from the device */
    cudaEvent_t begin, end;
    uint64_t begin_ns, end_ns; /* since the profile's first step began */
};

struct profile_step {
    uint64_t number; /* counted from 1, as progress does */
    size_t first, count;
    cudaEvent_t begin, end;
    uint64_t begin_ns, end_ns;
};

enum profile_state { PROFILE_WAITS, PROFILE_MEASURES, PROFILE_IS_DONE };

struct profile {
    struct ops table;  /* replaces the device's table while it is watched; must be the first field */
    struct ops *inner; /* the device's own; NULL: not watched */
    const struct train_options *options;
    struct model *model;
    uint64_t replica;
    enum profile_state state;
    bool within;   /* a step */
    uint64_t seen; /* steps, those before the first one measured included */
    struct profile_span *spans;
    size_t span_count, span_room;  /* all of the room has events while it measures */
    size_t step_spans, most_spans; /* of this step, and of the largest one */
    struct profile_step *steps;
    size_t step_count, step_room;
    uint64_t origin_ns;                /* when the first step began, by the host's clock */
    char (*names)[PROFILE_NAME_BYTES]; /* of the layers, and of the loss */
    bool nvtx;
    struct model_place range; /* NVTX: what is open */
    int ranges;
};

/* Replace the device's table of operations by the profile's, and put it back. */
void profile_watch(struct profile *profile);
void profile_unwatch(struct profile *profile);

/* Around each operation: 0 or the CUDA runtime's error number. */
int profile_begin_operation(struct profile *profile, cudaStream_t stream, const char *name);
int profile_end_operation(struct profile *profile, cudaStream_t stream);

/* Names the layers as PyTorch would, where they have parameters. */
enum status profile_make_names(struct profile *profile);
const char *profile_layer_name(const struct profile *profile, int layer);
const char *profile_pass_name(enum model_pass pass);

/* ---- sums ---- */

/* An operation of one pass in all layers. */
struct profile_row {
    enum model_pass pass;
    const char *operation;
    uint64_t ns;
    size_t calls;
    int layer; /* where most of the time goes */
};

struct profile_sums {
    struct profile_row *rows; /* the most expensive first */
    size_t row_count;
    uint64_t steps_ns;              /* all steps */
    uint64_t pass_ns[PASS_COUNT];   /* of operations */
    uint64_t idle_ns;               /* of the model's stream, between them */
    uint64_t average_ns, hidden_ns; /* all-reduces, and how much of it lies within a backward pass */
    size_t averages;
    const struct profile_span *peak; /* when most memory was live */
    const struct profile_step *peak_step;
};

enum status profile_sum(const struct profile *profile, struct profile_sums *sums);
void profile_sums_free(struct profile_sums *sums);

static inline size_t profile_live(const struct profile_span *span)
{
    size_t sum = 0;

    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        sum += span->live[kind];
    return sum;
}

#endif
