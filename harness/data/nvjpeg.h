/* Decodes JPEG files on the device by nvJPEG, the CUDA Toolkit's library, which is loaded on first use. A
 * decoder belongs to one thread and to the device that was current when it was opened; it takes device and
 * pinned memory of its own from the runtime. */
#ifndef HARNESS_NVJPEG_H
#define HARNESS_NVJPEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda_runtime_api.h>

#include "harness/base/status.h"

struct nvjpeg;

/* One file in host memory, and its place in device memory: [h][w][3], rows without gaps. */
struct nvjpeg_picture {
    const uint8_t *file;
    size_t bytes;
    uint8_t *out;
    uint32_t w;
};

/* Returns true if the library can be loaded. */
bool nvjpeg_is_there(void);

/* Opens a decoder on the card's JPEG engines, which do not slow down its other units. With `any`, uses those
 * other units if there are no engines. Sets *out to NULL, without a message, if this card or machine cannot
 * decode. */
enum status nvjpeg_open(struct nvjpeg **out, bool any);

/* The caller has waited for queued decoding. */
void nvjpeg_close(struct nvjpeg *nvjpeg);

/* Queues the decoding of all pictures. The files must stay until the stream has done it. Returns false if
 * nvJPEG refuses one of them: then none is decoded, but work may be queued that writes to any `out`. */
bool nvjpeg_decode(struct nvjpeg *nvjpeg, const struct nvjpeg_picture *pictures, size_t count,
                   cudaStream_t stream);

#endif
