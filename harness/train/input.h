/* Batches in device memory: copied by a feed, prepared (pictures cropped and normalized, floats cast) and
 * passed to the model. Two sets take turns, so that the copy of one batch overlaps the computing of the one
 * before. The raw pictures of a validation that is prepared on the device come from plain cudaMalloc, not
 * from the model's cache or arena, as those of a preprocessing library would. */
#ifndef HARNESS_INPUT_H
#define HARNESS_INPUT_H

#include "harness/data/dataset.h"
#include "harness/base/train_options.h"
#include "harness/data/feed.h"
#include "harness/data/nvjpeg.h"
#include "harness/model/model.h"

enum { INPUT_SETS = 2 };

struct input_set {
    struct tensor raw, raw_target; /* bytes, or floats */
    struct tensor decoded;         /* pictures that the device has decoded, each of its own size */
    struct tensor pictures;        /* where they are: struct ops_picture, one for each sample */
    struct tensor crops;
    struct tensor labels, tokens;
    struct tensor x, target; /* prepared, in the model's type */
    size_t count;            /* samples; 0 at the end of a pass */
    size_t whole;            /* samples of the whole batch, over all shards */
    int length;              /* tokens of a sample */
    cudaEvent_t copied;      /* from the feed: the copy has finished */
};

struct input {
    struct model *model;
    const struct data_spec *spec;
    struct feed *feed;
    struct nvjpeg *decoder;       /* NULL: the host decodes */
    struct nvjpeg_picture *coded; /* of the batch being decoded */
    uint64_t decoded;             /* pictures that the device has decoded */
    bool prepared_on_host;
    struct mem *raw_mem; /* for raw pictures: the model's mem, or `beside` */
    struct mem beside;
    struct supply own;
    uint64_t shards;
    struct input_set set[INPUT_SETS];
    uint64_t given;
    bool ahead; /* the copy of the next set was started */
};

/* How much of a batch to use; 0 means all. */
struct input_part {
    size_t count;
    int length;
};

/* `decode`: where JPEG files are decoded. */
enum status input_open(struct input *input, struct model *model, struct dataset *dataset,
                       const struct pipeline_config *config, enum decode_place decode);
void input_close(struct input *input);

/* Starts copying the next batch, unless that was already done. */
enum status input_prefetch(struct input *input, const struct input_part *part);

/* Sets *set to the oldest set that is being copied and makes the model's stream wait for its copy. *set is
 * NULL at the end of a pass. */
enum status input_take(struct input *input, struct input_set **set);

/* Queues the preparation of a set and points the model and *targets at it. */
enum status input_prepare(struct input *input, struct input_set *set, struct model_targets *targets);

/* Releases a set. */
enum status input_done(struct input *input, struct input_set *set);

/* After a failure: frees the memory of both sets. */
void input_drop(struct input *input);

/* Gets the position after the samples that were taken; prefetched ones do not count. */
void input_tell(struct input *input, struct pipeline_position *position);
enum status input_seek(struct input *input, const struct pipeline_position *position);

#endif
