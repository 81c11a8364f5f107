/* Device memory goes through the file's one buffer of bounded size; only a sparse matrix is held whole on
 * the host, because its zeros are left out there. See checkpoint_param.h. */
#include "harness/train/checkpoint_param.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 3, BITS = 8 };

/* A run of bytes in device memory that the file holds as it is. */
struct part {
    const struct tensor *tensor;
    size_t bytes;
    bool floats;
};

static int list_parts(const struct param *param, const struct checkpoint_entry *entry,
                      struct part out[MOST_PARTS])
{
    const struct tensor *floats[MOST_PARTS] = {&param->weight, &param->first, &param->second};
    size_t bytes = param_count(param) * sizeof(float);

    if (entry->form == CHECKPOINT_INT8) {
        out[0] = (struct part){&param->bytes, param_count(param), false};
        out[1] = (struct part){&param->scale, (size_t)param->rows * sizeof(float), true};
        return 2;
    }
    for (uint32_t i = 0; i < entry->copies; i++)
        out[i] = (struct part){floats[i], bytes, true};
    return (int)entry->copies;
}

static uint32_t states_of(const struct param *param)
{
    return 1 + (param->first.data != NULL) + (param->second.data != NULL);
}

static bool all_finite(const void *bytes, size_t count)
{
    const uint32_t exponent = 0x7f800000u; /* all ones: infinite or not a number */
    const uint8_t *from = bytes;
    uint32_t bad = 0;
    uint32_t bits;

    for (size_t at = 0; at < count; at += sizeof(bits)) {
        memcpy(&bits, from + at, sizeof(bits));
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

/* An update can overflow although its loss and gradients are finite. This finds it before the file is
 * renamed. */
enum status checkpoint_check_finite(const struct trainer *trainer, const void *bytes, size_t count)
{
    if (trainer->options.on_nan == ON_NAN_GO || all_finite(bytes, count))
        return STATUS_OK;
    return status_fail(STATUS_NOT_FINITE, "a weight or moment at step %llu is not finite: it is not saved",
                       (unsigned long long)trainer->step);
}

static const char copying[] = "copying a checkpoint";

static enum status save_part(struct trainer *trainer, struct checkpoint_file *file, const struct part *part)
{
    enum status status = STATUS_OK;

    for (size_t done = 0; done < part->bytes && !status; done += CHECKPOINT_CHUNK) {
        size_t bytes = part->bytes - done < CHECKPOINT_CHUNK ? part->bytes - done : CHECKPOINT_CHUNK;

        status = cuda_device_read(trainer->device, file->buffer, (char *)part->tensor->data + done, bytes,
                                  copying);
        if (!status && part->floats)
            status = checkpoint_check_finite(trainer, file->buffer, bytes);
        if (!status)
            status = checkpoint_file_add(file, file->buffer, bytes);
    }
    return status;
}

static enum status load_part(struct trainer *trainer, struct checkpoint_file *file, const struct part *part)
{
    enum status status = STATUS_OK;

    for (size_t done = 0; done < part->bytes && !status; done += CHECKPOINT_CHUNK) {
        size_t bytes = part->bytes - done < CHECKPOINT_CHUNK ? part->bytes - done : CHECKPOINT_CHUNK;

        if (!checkpoint_file_read(file, file->buffer, bytes))
            return checkpoint_file_fail(file, STATUS_FAILED, "the checkpoint cannot be read");
        status = cuda_device_write(trainer->device, (char *)part->tensor->data + done, file->buffer, bytes,
                                   copying);
    }
    return status;
}

/* ---- sparse: a bit for each weight, then those that are not zero ---- */

static enum status hold_weights(struct trainer *trainer, const struct param *param, float **out)
{
    size_t bytes = param_count(param) * sizeof(float);
    enum status status;

    *out = malloc(bytes);
    if (!*out)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %zu weights", param_count(param));
    status = cuda_device_read(trainer->device, *out, param->weight.data, bytes, copying);
    return status ? status : checkpoint_check_finite(trainer, *out, bytes);
}

static enum status count_left(struct trainer *trainer, struct param *param, uint32_t *left)
{
    float *weights = NULL;
    enum status status = hold_weights(trainer, param, &weights);

    *left = 0;
    for (size_t i = 0; i < param_count(param) && !status; i++)
        *left += weights[i] != 0.0f;
    free(weights);
    return status;
}

static size_t mask_bytes(const struct param *param)
{
    return (param_count(param) + BITS - 1) / BITS;
}

static enum status save_sparse(struct trainer *trainer, struct checkpoint_file *file, struct param *param)
{
    uint8_t *mask = calloc(1, mask_bytes(param));
    float *weights = NULL;
    size_t left = 0;
    enum status status = mask ? hold_weights(trainer, param, &weights)
                              : status_fail(STATUS_NO_MEMORY, "no host memory for a mask of weights");

    for (size_t i = 0; i < param_count(param) && !status; i++) {
        if (weights[i] != 0.0f) {
            mask[i / BITS] |= (uint8_t)(1u << i % BITS);
            weights[left++] = weights[i];
        }
    }
    if (!status)
        status = checkpoint_file_add(file, mask, mask_bytes(param));
    if (!status)
        status = checkpoint_file_add(file, weights, left * sizeof(float));
    free(weights);
    free(mask);
    return status;
}

/* Spreads `left` weights at the front of the array to the places of the mask. Returns false if the mask has
 * another number of bits. */
static bool spread(float *weights, size_t count, size_t left, const uint8_t *mask)
{
    for (size_t i = count; i-- > 0;) {
        bool there = mask[i / BITS] & 1u << i % BITS;

        if (there && left == 0)
            return false;
        weights[i] = there ? weights[--left] : 0.0f;
    }
    return left == 0;
}

static enum status load_sparse(struct trainer *trainer, struct checkpoint_file *file, struct param *param,
                               size_t left)
{
    size_t count = param_count(param);
    uint8_t *mask = malloc(mask_bytes(param));
    float *weights = malloc(count * sizeof(float));
    enum status status = STATUS_OK;

    if (!mask || !weights)
        status = status_fail(STATUS_NO_MEMORY, "no host memory for %zu weights", count);
    else if (!checkpoint_file_read(file, mask, mask_bytes(param)) ||
             !checkpoint_file_read(file, weights, left * sizeof(float)))
        status = checkpoint_file_fail(file, STATUS_FAILED, "the checkpoint cannot be read");
    else if (!spread(weights, count, left, mask))
        status = status_fail(STATUS_FAILED, "--resume=%s: a mask of weights does not fit their number",
                             file->path);
    else
        status =
            cuda_device_write(trainer->device, param->weight.data, weights, count * sizeof(float), copying);
    free(weights);
    free(mask);
    return status;
}

/* ---- a parameter ---- */

enum status checkpoint_param_entry(struct trainer *trainer, struct param *param, enum checkpoint_kind kind,
                                   struct checkpoint_entry *entry)
{
    *entry = (struct checkpoint_entry){.rows = (uint32_t)param->rows,
                                       .cols = (uint32_t)param->cols,
                                       .copies = kind == CHECKPOINT_FULL ? states_of(param) : 1};
    if (param->bytes.data)
        entry->form = CHECKPOINT_INT8;
    if (kind != CHECKPOINT_SMALL_SPARSE || !param_can_pack(param) || param_count(param) > UINT32_MAX)
        return STATUS_OK;
    entry->form = CHECKPOINT_SPARSE;
    return count_left(trainer, param, &entry->copies);
}

enum status checkpoint_param_save(struct trainer *trainer, struct checkpoint_file *file, struct param *param,
                                  const struct checkpoint_entry *entry)
{
    struct part parts[MOST_PARTS];
    enum status status = STATUS_OK;
    int count;

    if (entry->form == CHECKPOINT_SPARSE)
        return save_sparse(trainer, file, param);
    count = list_parts(param, entry, parts);
    for (int i = 0; i < count && !status; i++)
        status = save_part(trainer, file, &parts[i]);
    return status;
}

bool checkpoint_param_fits(const struct param *param, const struct checkpoint_entry *entry, bool small)
{
    if (entry->rows != (uint32_t)param->rows || entry->cols != (uint32_t)param->cols)
        return false;
    if (param->bytes.data) /* the model was opened for bytes */
        return entry->form == CHECKPOINT_INT8;
    if (entry->form != CHECKPOINT_FLOATS)
        return param_can_pack(param);
    return entry->copies == (small ? 1 : states_of(param));
}

enum status checkpoint_param_load(struct trainer *trainer, struct checkpoint_file *file, struct param *param,
                                  const struct checkpoint_entry *entry, bool small)
{
    struct mem *mem = &trainer->mem;
    struct part parts[MOST_PARTS];
    enum status status = STATUS_OK;
    int count;

    if (small)
        status = mem_drop(mem, &param->first);
    if (!status && small)
        status = mem_drop(mem, &param->second);
    if (!status && entry->form == CHECKPOINT_INT8)
        status = param_hold_bytes(param, mem);
    if (!status && entry->form == CHECKPOINT_SPARSE)
        status = load_sparse(trainer, file, param, entry->copies);
    if (!status && entry->form != CHECKPOINT_SPARSE) {
        count = list_parts(param, entry, parts);
        for (int i = 0; i < count && !status; i++)
            status = load_part(trainer, file, &parts[i]);
    }
    return status ? status : param_refresh(param, trainer->device, trainer->model.type);
}
