/* Copies and prepares batches for the model. See input.h. */
#include "harness/train/input.h"

#include <string.h>

#include "harness/train/input_decode.h"

enum { RAW_TENSORS = 3 }; /* raw, raw_target and decoded come first in every list here */

enum status input_open(struct input *input, struct model *model, struct dataset *dataset,
                       const struct pipeline_config *config, enum decode_place decode)
{
    struct pipeline_config own = *config;
    enum status status;

    memset(input, 0, sizeof(*input));
    input->model = model;
    input->raw_mem = model->mem;
    input->spec = dataset_spec(dataset);
    input->prepared_on_host = config->prepare == PREPARE_CPU || input->spec->kind == DATA_FLOATS;
    input->shards = config->shards ? config->shards : 1;
    status = input_decode_open(input, dataset, config, decode);
    own.coded = input->decoder;
    if (!status && config->split == DATA_VALIDATION && !input->prepared_on_host) {
        status = supply_open(&input->own, ALLOC_NAIVE, 0, model->mem->supply->budget);
        mem_open(&input->beside, &input->own, model->mem->stream);
        input->raw_mem = &input->beside;
    }
    return status ? status : feed_open(&input->feed, dataset, &own);
}

static void drop_set(struct input *input, struct input_set *set)
{
    struct tensor *all[] = {&set->raw,    &set->raw_target, &set->decoded, &set->pictures, &set->crops,
                            &set->labels, &set->tokens,     &set->x,       &set->target};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        mem_drop(i < RAW_TENSORS ? input->raw_mem : input->model->mem, all[i]);
}

/* Copies in flight must finish before their memory is used for anything else. */
static enum status await(struct input *input, const struct input_set *set)
{
    if (!set->count)
        return STATUS_OK;
    return feed_wait(set->copied, input->model->device->stream);
}

static void forget_ahead(struct input *input)
{
    if (input->ahead)
        await(input, &input->set[input->given % INPUT_SETS]);
    input->ahead = false;
}

void input_drop(struct input *input)
{
    forget_ahead(input);
    for (int i = 0; i < INPUT_SETS; i++)
        drop_set(input, &input->set[i]);
}

void input_close(struct input *input)
{
    if (input->feed)
        feed_close(input->feed); /* waits for the copies */
    input_decode_close(input);
    input->ahead = false;
    if (input->model)
        input_drop(input);
    supply_close(&input->own);
    memset(input, 0, sizeof(*input));
}

/* Takes the first `length` tokens of each sample, side by side. */
static void shorten(int32_t *tokens, size_t count, int from, int length)
{
    for (size_t i = 1; i < count && length < from; i++)
        memmove(tokens + i * (size_t)length, tokens + i * (size_t)from, (size_t)length * sizeof(*tokens));
}

struct piece {
    struct mem *mem;
    struct tensor *to;
    const void *from; /* NULL: the batch has none of it */
    size_t bytes;
    bool coded; /* input_decode writes it */
};

enum { PIECES = 5 };

static void list_pieces(const struct input *input, struct input_set *set, const struct batch *batch,
                        struct piece pieces[PIECES])
{
    const struct data_spec *spec = input->spec;
    size_t labels = set->count * (batch->tokens ? (size_t)set->length : 1) * sizeof(int32_t);
    size_t bytes = set->count * (size_t)spec->raw_h * (size_t)spec->raw_w * (size_t)spec->c;
    size_t floats = set->count * (size_t)spec->h * (size_t)spec->w * (size_t)spec->c * sizeof(float);
    struct mem *mem = input->model->mem;
    struct mem *raw = input->raw_mem;

    pieces[0] = (struct piece){mem, &set->labels, batch->labels, labels, false};
    pieces[1] = (struct piece){mem, &set->tokens, batch->tokens, labels, false};
    pieces[2] = (struct piece){mem, &set->crops, batch->crops, set->count * sizeof(*batch->crops), false};
    pieces[3] = batch->bytes ? (struct piece){raw, &set->raw, batch->bytes, bytes, batch->coded}
                             : (struct piece){raw, &set->raw, batch->floats, floats, false};
    pieces[4] = batch->target_bytes
                    ? (struct piece){raw, &set->raw_target, batch->target_bytes, bytes, false}
                    : (struct piece){raw, &set->raw_target, batch->target_floats, floats, false};
}

/* Takes all memory before the copies begin: taking may make the stream wait, and the copies must wait for
 * that too. */
static enum status copy_batch(struct input *input, struct input_set *set, struct batch *batch)
{
    struct piece pieces[PIECES];
    enum status status = STATUS_OK;

    if (batch->tokens) {
        shorten(batch->tokens, set->count, input->spec->length, set->length);
        shorten(batch->labels, set->count, input->spec->length, set->length);
    }
    list_pieces(input, set, batch, pieces);
    for (int i = 0; i < PIECES && !status; i++) {
        if (pieces[i].from)
            status = mem_need(pieces[i].mem, pieces[i].to, pieces[i].bytes, MEM_INPUT);
    }
    if (!status && batch->coded)
        status = input_decode_need(input, set, batch);
    if (!status)
        status = feed_begin(input->feed, input->model->device->stream);
    if (!status && batch->coded)
        status = input_decode(input, set, batch);
    for (int i = 0; i < PIECES && !status; i++) {
        if (pieces[i].from && !pieces[i].coded)
            status = feed_copy(input->feed, pieces[i].to->data, pieces[i].from, pieces[i].bytes);
    }
    return status;
}

enum status input_prefetch(struct input *input, const struct input_part *part)
{
    struct input_set *set = &input->set[input->given % INPUT_SETS];
    struct batch *batch = NULL;
    enum status status;

    if (input->ahead)
        return STATUS_OK;
    status = feed_next(input->feed, &batch);
    if (status)
        return status;
    input->ahead = true;
    set->count = set->whole = 0;
    if (!batch)
        return STATUS_OK;
    set->whole = batch->count * input->shards;
    set->count = part->count && part->count < batch->count ? part->count : batch->count;
    set->length = part->length && part->length < input->spec->length ? part->length : input->spec->length;
    status = copy_batch(input, set, batch);
    if (status) {
        if (!feed_end(input->feed, batch, &set->copied))
            await(input, set);
        set->count = 0;
        return status;
    }
    return feed_end(input->feed, batch, &set->copied);
}

enum status input_take(struct input *input, struct input_set **set)
{
    struct input_set *next = &input->set[input->given % INPUT_SETS];

    if (!input->ahead)
        return status_fail(STATUS_FAILED, "no batch was asked for");
    input->given++;
    input->ahead = false;
    *set = next->count ? next : NULL;
    return await(input, next);
}

/* Prepares one tensor: crops and normalizes bytes, casts floats unless the model reads floats. */
static enum status prepare(struct input *input, struct input_set *set, struct tensor *raw, struct tensor *x,
                           const void **out)
{
    const struct data_spec *spec = input->spec;
    struct model *model = input->model;
    size_t count = set->count * (size_t)spec->h * (size_t)spec->w * (size_t)spec->c;
    struct op_image_prepare picture = {.x = raw->data,
                                       .crops = set->crops.data,
                                       .type = model->type,
                                       .n = (int)set->count,
                                       .h = spec->raw_h,
                                       .w = spec->raw_w,
                                       .c = spec->c,
                                       .oh = spec->h,
                                       .ow = spec->w};
    enum status status;

    *out = raw->data;
    if (input->prepared_on_host && model->type == OPS_F32)
        return STATUS_OK;
    status = mem_need(model->mem, x, count * ops_type_bytes(model->type), MEM_INPUT);
    *out = x->data;
    if (status)
        return status;
    if (input->prepared_on_host)
        return MODEL_OP(model, cast, .x = raw->data, .out = x->data, .x_type = OPS_F32,
                        .out_type = model->type, .count = count);
    picture.out = x->data;
    memcpy(picture.mean, spec->mean, sizeof(picture.mean));
    memcpy(picture.deviation, spec->deviation, sizeof(picture.deviation));
    return cuda_device_status(
        model->device->ops->image_prepare(model->device->ops, model->device->stream, &picture),
        "image_prepare");
}

enum status input_prepare(struct input *input, struct input_set *set, struct model_targets *targets)
{
    struct model *model = input->model;
    const void *x = NULL;
    enum status status = STATUS_OK;

    *targets = (struct model_targets){.labels = set->labels.data};
    model->n = (int)set->count;
    model->length = set->length;
    if (input->spec->kind == DATA_TOKENS) {
        model->tokens = set->tokens.data;
        return STATUS_OK;
    }
    status = prepare(input, set, &set->raw, &set->x, &x);
    if (!status && set->raw_target.data)
        status = prepare(input, set, &set->raw_target, &set->target, &targets->picture);
    model->values[model->input].data.data = (void *)(uintptr_t)x;
    return status;
}

enum status input_done(struct input *input, struct input_set *set)
{
    struct tensor *all[] = {&set->raw,    &set->raw_target, &set->decoded, &set->pictures, &set->crops,
                            &set->labels, &set->tokens,     &set->x,       &set->target};
    enum status status = STATUS_OK;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && !status; i++)
        status = mem_done(i < RAW_TENSORS ? input->raw_mem : input->model->mem, all[i]);
    return status;
}

void input_tell(struct input *input, struct pipeline_position *position)
{
    pipeline_tell(feed_pipeline(input->feed), position);
    if (input->ahead)
        position->samples -= input->set[input->given % INPUT_SETS].whole;
}

enum status input_seek(struct input *input, const struct pipeline_position *position)
{
    forget_ahead(input);
    return pipeline_seek(feed_pipeline(input->feed), position);
}
