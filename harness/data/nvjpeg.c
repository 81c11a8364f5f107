/* The few entry points of libnvjpeg that decoding batches needs, declared here because its header may not be
 * there; where it is, the compiler compares (at the end). They are the same from version 11 on. */
#include "harness/data/nvjpeg.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { BACKEND_DEFAULT = 0, BACKEND_HARDWARE = 3, OUTPUT_RGBI = 5, PLANES = 4 };
enum {
    RGB = 3,
    MOST_THREADS = 16,
    MOST_REFUSALS = 4 /* batches in a row, then the engines are left alone */
};

struct nvjpeg_image {
    unsigned char *channel[PLANES];
    size_t pitch[PLANES];
};

struct nvjpegHandle; /* nvJPEG's own */
struct nvjpegJpegState;

/* nvJPEG with one way to decode. */
struct backend {
    struct nvjpegHandle *handle;
    struct nvjpegJpegState *state; /* NULL: it is not open */
    size_t count;                  /* pictures of the batches that `state` is set up for */
};

struct nvjpeg {
    struct backend engines; /* the card's JPEG engines, if it has any */
    struct backend units;   /* its other units: without engines, and for batches that those refuse */
    int refused;            /* batches in a row that the engines have refused */
    size_t room;            /* of these three: */
    const unsigned char **files;
    size_t *lengths;
    struct nvjpeg_image *images;
};

static struct {
    pthread_once_t once;
    void *library;
    int (*create)(int backend, void *device_allocator, void *pinned_allocator, unsigned flags,
                  struct nvjpegHandle **handle);
    int (*destroy)(struct nvjpegHandle *handle);
    int (*state_create)(struct nvjpegHandle *handle, struct nvjpegJpegState **state);
    int (*state_destroy)(struct nvjpegJpegState *state);
    int (*initialize)(struct nvjpegHandle *handle, struct nvjpegJpegState *state, int batch, int threads,
                      int format);
    int (*decode)(struct nvjpegHandle *handle, struct nvjpegJpegState *state,
                  const unsigned char *const *files, const size_t *lengths, struct nvjpeg_image *images,
                  cudaStream_t stream);
} lib = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    static const char *const names[] = {"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11"};
    void *library = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
#ifdef HARNESS_NVJPEG_FOLDER
    if (!library) /* the toolkit of the build, which need not be where libraries are looked for */
        library = dlopen(HARNESS_NVJPEG_FOLDER "/libnvjpeg.so", RTLD_NOW | RTLD_LOCAL);
#endif
    if (!library)
        return;
    *(void **)&lib.create = dlsym(library, "nvjpegCreateEx");
    *(void **)&lib.destroy = dlsym(library, "nvjpegDestroy");
    *(void **)&lib.state_create = dlsym(library, "nvjpegJpegStateCreate");
    *(void **)&lib.state_destroy = dlsym(library, "nvjpegJpegStateDestroy");
    *(void **)&lib.initialize = dlsym(library, "nvjpegDecodeBatchedInitialize");
    *(void **)&lib.decode = dlsym(library, "nvjpegDecodeBatched");
    if (lib.create && lib.destroy && lib.state_create && lib.state_destroy && lib.initialize && lib.decode)
        lib.library = library;
}

bool nvjpeg_is_there(void)
{
    pthread_once(&lib.once, load);
    return lib.library;
}

static void close_backend(struct backend *backend)
{
    if (backend->state)
        lib.state_destroy(backend->state);
    if (backend->handle)
        lib.destroy(backend->handle);
    *backend = (struct backend){0};
}

static bool open_backend(struct backend *backend, int kind)
{
    if (backend->state)
        return true;
    if (lib.create(kind, NULL, NULL, 0, &backend->handle)) {
        backend->handle = NULL;
        return false;
    }
    if (lib.state_create(backend->handle, &backend->state)) {
        backend->state = NULL;
        close_backend(backend);
    }
    return backend->state;
}

enum status nvjpeg_open(struct nvjpeg **out, bool any)
{
    struct nvjpeg *nvjpeg;

    *out = NULL;
    if (!nvjpeg_is_there())
        return STATUS_OK;
    nvjpeg = calloc(1, sizeof(*nvjpeg));
    if (!nvjpeg)
        return status_fail(STATUS_NO_MEMORY, "no host memory for a decoder of pictures");
    if (open_backend(&nvjpeg->engines, BACKEND_HARDWARE) ||
        (any && open_backend(&nvjpeg->units, BACKEND_DEFAULT)))
        *out = nvjpeg;
    else
        nvjpeg_close(nvjpeg);
    return STATUS_OK;
}

void nvjpeg_close(struct nvjpeg *nvjpeg)
{
    if (!nvjpeg)
        return;
    close_backend(&nvjpeg->engines);
    close_backend(&nvjpeg->units);
    free(nvjpeg->files);
    free(nvjpeg->lengths);
    free(nvjpeg->images);
    free(nvjpeg);
}

static bool need_room(struct nvjpeg *nvjpeg, size_t count)
{
    if (count <= nvjpeg->room)
        return true;
    free(nvjpeg->files);
    free(nvjpeg->lengths);
    free(nvjpeg->images);
    nvjpeg->files = calloc(count, sizeof(*nvjpeg->files));
    nvjpeg->lengths = calloc(count, sizeof(*nvjpeg->lengths));
    nvjpeg->images = calloc(count, sizeof(*nvjpeg->images));
    nvjpeg->room = nvjpeg->files && nvjpeg->lengths && nvjpeg->images ? count : 0;
    return nvjpeg->room > 0;
}

/* A state is set up for batches of one size, and anew after a failure. */
static bool set_up(struct backend *backend, size_t count)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = processors < 1 ? 1 : processors > MOST_THREADS ? MOST_THREADS : (int)processors;

    if (backend->count == count)
        return true;
    backend->count = 0;
    if (lib.initialize(backend->handle, backend->state, (int)count, threads, OUTPUT_RGBI))
        return false;
    backend->count = count;
    return true;
}

static bool decode_by(struct nvjpeg *nvjpeg, struct backend *backend, size_t count, cudaStream_t stream)
{
    if (set_up(backend, count) &&
        !lib.decode(backend->handle, backend->state, nvjpeg->files, nvjpeg->lengths, nvjpeg->images, stream))
        return true;
    backend->count = 0;
    return false;
}

bool nvjpeg_decode(struct nvjpeg *nvjpeg, const struct nvjpeg_picture *pictures, size_t count,
                   cudaStream_t stream)
{
    if (count == 0)
        return true;
    if (!need_room(nvjpeg, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        nvjpeg->files[i] = pictures[i].file;
        nvjpeg->lengths[i] = pictures[i].bytes;
        nvjpeg->images[i] =
            (struct nvjpeg_image){.channel = {pictures[i].out}, .pitch = {(size_t)pictures[i].w * RGB}};
    }
    if (nvjpeg->engines.state && nvjpeg->refused < MOST_REFUSALS) {
        if (decode_by(nvjpeg, &nvjpeg->engines, count, stream)) {
            nvjpeg->refused = 0;
            return true;
        }
        nvjpeg->refused++;
    }
    return open_backend(&nvjpeg->units, BACKEND_DEFAULT) && decode_by(nvjpeg, &nvjpeg->units, count, stream);
}

#if __has_include(<nvjpeg.h>)
#include <nvjpeg.h>

_Static_assert(NVJPEG_STATUS_SUCCESS == 0, "success is 0");
_Static_assert((int)NVJPEG_BACKEND_DEFAULT == BACKEND_DEFAULT &&
                   (int)NVJPEG_BACKEND_HARDWARE == BACKEND_HARDWARE,
               "the backends");
_Static_assert((int)NVJPEG_OUTPUT_RGBI == OUTPUT_RGBI, "the format");
_Static_assert(NVJPEG_MAX_COMPONENT == PLANES && sizeof(nvjpegImage_t) == sizeof(struct nvjpeg_image) &&
                   offsetof(nvjpegImage_t, pitch) == offsetof(struct nvjpeg_image, pitch),
               "the place of a picture");
_Static_assert(sizeof(nvjpegBackend_t) == sizeof(int) && sizeof(nvjpegOutputFormat_t) == sizeof(int) &&
                   sizeof(nvjpegStatus_t) == sizeof(int),
               "enumerations are as wide as int");
/* The numbers and kinds of arguments: calls with these must compile. */
#define AGREES(call) _Static_assert(sizeof(call) == sizeof(int), #call)
AGREES(nvjpegCreateEx(NVJPEG_BACKEND_DEFAULT, NULL, NULL, 0u, (nvjpegHandle_t *)NULL));
AGREES(nvjpegDestroy((nvjpegHandle_t)NULL));
AGREES(nvjpegJpegStateCreate((nvjpegHandle_t)NULL, (nvjpegJpegState_t *)NULL));
AGREES(nvjpegJpegStateDestroy((nvjpegJpegState_t)NULL));
AGREES(nvjpegDecodeBatchedInitialize((nvjpegHandle_t)NULL, (nvjpegJpegState_t)NULL, 1, 1,
                                     NVJPEG_OUTPUT_RGBI));
AGREES(nvjpegDecodeBatched((nvjpegHandle_t)NULL, (nvjpegJpegState_t)NULL, (const unsigned char *const *)NULL,
                           (const size_t *)NULL, (nvjpegImage_t *)NULL, (cudaStream_t)NULL));
#endif
