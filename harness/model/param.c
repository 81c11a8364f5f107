/* Parameters: initial values and memory. */
#include "harness/model/param.h"

#include <stdlib.h>

static enum status upload_start(struct param *param, struct cuda_device *device,
                                const struct param_init *init, struct rng *rng)
{
    size_t count = param_count(param);
    float *host = malloc(count * sizeof(float));
    enum status status;

    if (!host)
        return status_fail(STATUS_NO_MEMORY, "no host memory for %zu weights", count);
    for (size_t i = 0; i < count; i++)
        host[i] = init->deviation > 0.0f ? init->deviation * rng_normal(rng) : init->value;
    status = cuda_device_write(device, param->weight.data, host, count * sizeof(float), "copying weights");
    free(host);
    return status;
}

static enum status fill_start(struct param *param, struct cuda_device *device, float value)
{
    struct op_fill fill = {
        .out = param->weight.data, .type = OPS_F32, .count = param_count(param), .value = value};

    return cuda_device_status(device->ops->fill(device->ops, device->stream, &fill), "fill");
}

enum status param_refresh(struct param *param, struct cuda_device *device, enum ops_type type)
{
    struct op_cast cast = {.x = param->weight.data,
                           .out = param->copy.data,
                           .x_type = OPS_F32,
                           .out_type = type,
                           .count = param_count(param)};

    if (!param->copy.data)
        return STATUS_OK;
    return cuda_device_status(device->ops->cast(device->ops, device->stream, &cast), "cast");
}

enum status param_open(struct param *param, struct cuda_device *device, struct mem *mem, enum ops_type type,
                       const struct param_init *init, struct rng *rng)
{
    size_t bytes = param_count(param) * sizeof(float);
    enum status status = mem_need(mem, &param->weight, bytes, MEM_PARAMETERS);

    if (!status && type != OPS_F32 && !param->plain)
        status = mem_need(mem, &param->copy, param_count(param) * ops_type_bytes(type), MEM_PARAMETERS);
    if (!status)
        status = init->deviation > 0.0f ? upload_start(param, device, init, rng)
                                        : fill_start(param, device, init->value);
    return status ? status : param_refresh(param, device, type);
}

void param_close(struct param *param, struct mem *mem)
{
    struct tensor *all[] = {&param->weight, &param->copy,  &param->first, &param->second,
                            &param->grad,   &param->bytes, &param->scale};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        mem_drop(mem, all[i]);
}

enum status param_hold_bytes(struct param *param, struct mem *mem)
{
    enum status status = mem_drop(mem, &param->weight);

    if (!status)
        status = mem_drop(mem, &param->copy);
    if (!status)
        status = mem_need(mem, &param->bytes, param_count(param), MEM_PARAMETERS);
    return status ? status
                  : mem_need(mem, &param->scale, (size_t)param->rows * sizeof(float), MEM_PARAMETERS);
}

enum status param_pack(struct param *param, struct cuda_device *device, struct mem *mem)
{
    enum status status = mem_need(mem, &param->bytes, param_count(param), MEM_PARAMETERS);
    struct op_quantize quantize = {.x = param->weight.data, .rows = param->rows, .cols = param->cols};

    if (!status)
        status = mem_need(mem, &param->scale, (size_t)param->rows * sizeof(float), MEM_PARAMETERS);
    quantize.q = param->bytes.data;
    quantize.scale = param->scale.data;
    if (!status)
        status =
            cuda_device_status(device->ops->quantize(device->ops, device->stream, &quantize), "quantize");
    if (!status)
        status = mem_drop(mem, &param->weight);
    return status ? status : mem_drop(mem, &param->copy);
}

enum status param_unpack(struct param *param, struct cuda_device *device, enum ops_type type, void *to)
{
    struct op_dequantize dequantize = {.q = param->bytes.data,
                                       .scale = param->scale.data,
                                       .x = to,
                                       .type = type,
                                       .rows = param->rows,
                                       .cols = param->cols};

    param->unpacked = to;
    return cuda_device_status(device->ops->dequantize(device->ops, device->stream, &dequantize),
                              "dequantize");
}

enum status param_grad(struct param *param, struct mem *mem, float **out, int *accumulate)
{
    enum status status = mem_need(mem, &param->grad, param_count(param) * sizeof(float), MEM_GRADIENTS);

    *out = param->grad.data;
    *accumulate = param->has_grad;
    param->has_grad = true;
    return status;
}
