/* nvjpeg_batch: nvJPEG's decoding of batches, by libjpeg. It uses other arithmetic than `train` on the host
 * (a fast inverse transform, chroma repeated), because the real one differs, too. Pictures are decoded in the
 * call; a host function on the stream writes them to simgpu's device memory.
 *
 * Differences from nvJPEG: any damage to a file is an error, which the real one may miss; libjpeg converts
 * grey pictures to RGB. The card has JPEG engines (NVJPEG_BACKEND_HARDWARE) if GPUCAP_SIM_NVJPEG is
 * "hardware"; they refuse pictures below 32 pixels a side, as an example of what engines may refuse. */
#include "tools/simgpu/nvjpeg/nvjpeg_abi.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum { RGB = 3, LEAST_SIDE = 32 /* smallest side that the engines decode */ };

struct nvjpegHandle {
    nvjpegBackend_t backend;
};

struct nvjpegJpegState {
    int batch;
};

/* A decoded picture on its way to the device. */
struct picture {
    unsigned char *rgb;
    size_t h, w;
    nvjpegImage_t to;
};

struct reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    nvjpegStatus_t status; /* here, because it must survive a longjmp */
    jmp_buf back;
};

static void give_up(j_common_ptr info)
{
    struct reader *reader = info->client_data;

    longjmp(reader->back, 1);
}

static void hear(j_common_ptr info, int level)
{
    if (level < 0)
        give_up(info);
}

static void say_nothing(j_common_ptr info)
{
    (void)info;
}

static void read_rows(struct reader *reader, const unsigned char *data, size_t length,
                      struct picture *picture)
{
    struct jpeg_decompress_struct *info = &reader->info;

    jpeg_create_decompress(info);
    info->client_data = reader;
    jpeg_mem_src(info, data, length);
    jpeg_read_header(info, TRUE);
    info->out_color_space = JCS_RGB;
    info->dct_method = JDCT_IFAST;
    info->do_fancy_upsampling = FALSE;
    jpeg_start_decompress(info);
    picture->h = info->output_height;
    picture->w = info->output_width;
    picture->rgb = malloc(picture->h * picture->w * RGB);
    if (!picture->rgb)
        longjmp(reader->back, 1);
    while (info->output_scanline < info->output_height) {
        JSAMPROW row = picture->rgb + info->output_scanline * picture->w * RGB;

        jpeg_read_scanlines(info, &row, 1);
    }
    jpeg_finish_decompress(info);
    reader->status = NVJPEG_STATUS_SUCCESS;
}

static nvjpegStatus_t read_picture(const unsigned char *data, size_t length, struct picture *picture)
{
    struct reader *reader = calloc(1, sizeof(*reader));
    nvjpegStatus_t status;

    if (!reader)
        return NVJPEG_STATUS_ALLOCATOR_FAILURE;
    reader->status = NVJPEG_STATUS_BAD_JPEG; /* until decoding has succeeded */
    reader->info.err = jpeg_std_error(&reader->errors);
    reader->info.client_data = reader;
    reader->errors.error_exit = give_up;
    reader->errors.emit_message = hear;
    reader->errors.output_message = say_nothing;
    if (!setjmp(reader->back))
        read_rows(reader, data, length, picture);
    status = reader->status;
    jpeg_destroy_decompress(&reader->info);
    free(reader);
    return status;
}

static void forget(struct picture *picture)
{
    free(picture->rgb);
    free(picture);
}

static void CUDART_CB write_picture(void *argument)
{
    struct picture *picture = argument;

    for (size_t y = 0; y < picture->h; y++)
        memcpy(picture->to.channel[0] + y * picture->to.pitch[0], picture->rgb + y * picture->w * RGB,
               picture->w * RGB);
    forget(picture);
}

static nvjpegStatus_t decode(nvjpegHandle_t handle, const unsigned char *data, size_t length,
                             const nvjpegImage_t *to, cudaStream_t stream)
{
    struct picture *picture = calloc(1, sizeof(*picture));
    nvjpegStatus_t status = picture ? read_picture(data, length, picture) : NVJPEG_STATUS_ALLOCATOR_FAILURE;

    if (!status) {
        picture->to = *to;
        if (handle->backend == NVJPEG_BACKEND_HARDWARE &&
            (picture->h < LEAST_SIDE || picture->w < LEAST_SIDE))
            status = NVJPEG_STATUS_JPEG_NOT_SUPPORTED;
        else if (!to->channel[0] || to->pitch[0] < picture->w * RGB)
            status = NVJPEG_STATUS_INVALID_PARAMETER;
        else if (cudaLaunchHostFunc(stream, write_picture, picture))
            status = NVJPEG_STATUS_EXECUTION_FAILED;
    }
    if (status && picture)
        forget(picture);
    return status;
}

/* ---- the interface ---- */

nvjpegStatus_t nvjpegCreateEx(nvjpegBackend_t backend, nvjpegDevAllocator_t *dev_allocator,
                              nvjpegPinnedAllocator_t *pinned_allocator, unsigned int flags,
                              nvjpegHandle_t *handle)
{
    const char *card = getenv("GPUCAP_SIM_NVJPEG");
    bool hardware = backend == NVJPEG_BACKEND_HARDWARE;

    (void)dev_allocator;
    (void)pinned_allocator;
    if (!handle || flags || (!hardware && backend != NVJPEG_BACKEND_DEFAULT))
        return NVJPEG_STATUS_INVALID_PARAMETER;
    if (hardware && !(card && !strcmp(card, "hardware")))
        return NVJPEG_STATUS_ARCH_MISMATCH;
    *handle = calloc(1, sizeof(**handle));
    if (!*handle)
        return NVJPEG_STATUS_ALLOCATOR_FAILURE;
    (*handle)->backend = backend;
    return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegDestroy(nvjpegHandle_t handle)
{
    free(handle);
    return handle ? NVJPEG_STATUS_SUCCESS : NVJPEG_STATUS_INVALID_PARAMETER;
}

nvjpegStatus_t nvjpegJpegStateCreate(nvjpegHandle_t handle, nvjpegJpegState_t *jpeg_handle)
{
    if (!handle || !jpeg_handle)
        return NVJPEG_STATUS_INVALID_PARAMETER;
    *jpeg_handle = calloc(1, sizeof(**jpeg_handle));
    return *jpeg_handle ? NVJPEG_STATUS_SUCCESS : NVJPEG_STATUS_ALLOCATOR_FAILURE;
}

nvjpegStatus_t nvjpegJpegStateDestroy(nvjpegJpegState_t jpeg_handle)
{
    free(jpeg_handle);
    return jpeg_handle ? NVJPEG_STATUS_SUCCESS : NVJPEG_STATUS_INVALID_PARAMETER;
}

nvjpegStatus_t nvjpegDecodeBatchedInitialize(nvjpegHandle_t handle, nvjpegJpegState_t jpeg_handle,
                                             int batch_size, int max_cpu_threads,
                                             nvjpegOutputFormat_t output_format)
{
    if (!handle || !jpeg_handle || batch_size < 1 || max_cpu_threads < 1 ||
        output_format != NVJPEG_OUTPUT_RGBI)
        return NVJPEG_STATUS_INVALID_PARAMETER;
    jpeg_handle->batch = batch_size;
    return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegDecodeBatched(nvjpegHandle_t handle, nvjpegJpegState_t jpeg_handle,
                                   const unsigned char *const *data, const size_t *lengths,
                                   nvjpegImage_t *destinations, cudaStream_t stream)
{
    nvjpegStatus_t status = NVJPEG_STATUS_SUCCESS;

    if (!handle || !jpeg_handle || !data || !lengths || !destinations)
        return NVJPEG_STATUS_INVALID_PARAMETER;
    if (!jpeg_handle->batch)
        return NVJPEG_STATUS_NOT_INITIALIZED;
    for (int i = 0; i < jpeg_handle->batch && !status; i++)
        status = decode(handle, data[i], lengths[i], &destinations[i], stream);
    if (status)
        jpeg_handle->batch = 0; /* a failed batch needs another initialization */
    return status;
}
