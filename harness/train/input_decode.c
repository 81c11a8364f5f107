/* Decoding on the device. See input_decode.h. */
#include "harness/train/input_decode.h"

#include <stdlib.h>

enum {
    RGB = 3,
    ALIGNMENT = 256, /* of each decoded picture */
    LEAST_STEP = 64 << 10,
    STEPS = 8,
    MANY_WORKERS = 16 /* decode faster than the JPEG engines of an H200, and leave the GPU alone (measured) */
};

enum status input_decode_open(struct input *input, const struct dataset *dataset,
                              const struct pipeline_config *config, enum decode_place decode)
{
    bool can = dataset_has_files(dataset) && config->prepare == PREPARE_GPU;
    bool must = decode == DECODE_GPU && config->split == DATA_TRAIN;
    enum status status = STATUS_OK;

    if (must && !can)
        return status_fail(STATUS_USAGE,
                           "--decode=gpu is for a folder of JPEG files with classes that is prepared on the "
                           "GPU (--augment=off or gpu); use --decode=cpu here");
    if (!can || decode == DECODE_CPU ||
        (decode == DECODE_AUTO && (config->cache || pipeline_workers(config) >= MANY_WORKERS)))
        return STATUS_OK;
    status = nvjpeg_open(&input->decoder, decode == DECODE_GPU);
    if (!status && must && !input->decoder)
        return status_fail(STATUS_FAILED,
                           nvjpeg_is_there()
                               ? "--decode=gpu: nvJPEG cannot be used on this GPU; use --decode=cpu"
                               : "--decode=gpu: libnvjpeg.so (of the CUDA Toolkit) cannot be loaded; add its "
                                 "folder to LD_LIBRARY_PATH, or use --decode=cpu");
    if (status || !input->decoder)
        return status;
    input->coded = calloc(config->batch ? config->batch : 1, sizeof(*input->coded));
    return input->coded ? STATUS_OK : status_fail(STATUS_NO_MEMORY, "no host memory for a list of pictures");
}

void input_decode_close(struct input *input)
{
    nvjpeg_close(input->decoder);
    free(input->coded);
    input->decoder = NULL;
    input->coded = NULL;
}

static size_t decoded_bytes(const struct coded_picture *coded)
{
    size_t bytes = coded->bytes ? (size_t)coded->h * coded->w * RGB : 0;

    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Batches differ in size, and an allocator should see few sizes: eight for each power of two. */
static size_t round_up(size_t bytes)
{
    size_t step = LEAST_STEP;

    while (step * STEPS < bytes)
        step *= 2;
    return (bytes + step - 1) / step * step;
}

enum status input_decode_need(struct input *input, struct input_set *set, const struct batch *batch)
{
    size_t bytes = 0;
    enum status status;

    for (size_t i = 0; i < set->count; i++)
        bytes += decoded_bytes(&batch->coded[i]);
    status = mem_need(input->model->mem, &set->pictures, set->count * sizeof(*batch->pictures), MEM_INPUT);
    if (status || !bytes)
        return status;
    return mem_need(input->raw_mem, &set->decoded, round_up(bytes), MEM_INPUT);
}

/* Lists the files and where each picture goes. Returns how many there are. */
static size_t list_pictures(struct input *input, struct input_set *set, const struct batch *batch)
{
    const struct data_spec *spec = input->spec;
    uint8_t *at = set->decoded.data;
    size_t count = 0;

    for (size_t i = 0; i < set->count; i++) {
        const struct coded_picture *coded = &batch->coded[i];
        uint32_t h, w;

        batch->pictures[i] = (struct ops_picture){0};
        if (!coded->bytes)
            continue;
        dataset_fit(spec, coded->h, coded->w, &h, &w);
        batch->pictures[i] =
            (struct ops_picture){at, (int32_t)coded->h, (int32_t)coded->w, (int32_t)h, (int32_t)w};
        input->coded[count++] =
            (struct nvjpeg_picture){batch->bytes + i * batch->stride, coded->bytes, at, coded->w};
        at += decoded_bytes(coded);
    }
    return count;
}

/* Copies the pictures that the host has decoded. */
static enum status copy_decoded(struct input *input, struct input_set *set, const struct batch *batch)
{
    const struct data_spec *spec = input->spec;
    size_t bytes = (size_t)spec->raw_h * (size_t)spec->raw_w * (size_t)spec->c;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < set->count && !status; i++) {
        if (!batch->coded[i].bytes)
            status = feed_copy(input->feed, (uint8_t *)set->raw.data + i * bytes,
                               batch->bytes + i * batch->stride, bytes);
    }
    return status;
}

static enum status fit(struct input *input, struct input_set *set)
{
    const struct data_spec *spec = input->spec;
    struct ops *ops = input->model->device->ops;
    struct op_image_fit args = {.pictures = set->pictures.data,
                                .out = set->raw.data,
                                .n = (int)set->count,
                                .h = spec->raw_h,
                                .w = spec->raw_w,
                                .c = spec->c};

    return cuda_device_status(ops->image_fit(ops, feed_stream(input->feed), &args), "image_fit");
}

enum status input_decode(struct input *input, struct input_set *set, struct batch *batch)
{
    size_t count = list_pictures(input, set, batch);
    enum status status = STATUS_OK;

    if (!nvjpeg_decode(input->decoder, input->coded, count, feed_stream(input->feed))) {
        /* What was queued may still read the files that are about to be overwritten. */
        status = cuda_device_status(cudaStreamSynchronize(feed_stream(input->feed)), "decoding pictures");
        if (!status)
            status = pipeline_decode(feed_pipeline(input->feed), batch);
        count = 0;
    }
    if (!status)
        status = copy_decoded(input, set, batch);
    if (status || !count)
        return status;
    input->decoded += count;
    status =
        feed_copy(input->feed, set->pictures.data, batch->pictures, set->count * sizeof(*batch->pictures));
    return status ? status : fit(input, set);
}
