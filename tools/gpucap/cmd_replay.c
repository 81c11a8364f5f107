/* gpucap replay: makes the allocations of a recording again, through the CUDA driver: under `gpucap run` it
 * tells whether the program would fit below a limit, without the program. Times are not kept. Owns no lock.
 */
#include "tools/gpucap/arguments.h"
#include "tools/gpucap/cards.h"
#include "tools/gpucap/cli.h"
#include "tools/gpucap/recording_set.h"
#include "tools/gpucap/recording_words.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct driver {
    CUresult (*init)(unsigned flags);
    CUresult (*device)(CUdevice *device, int ordinal);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*current)(CUcontext context);
    CUresult (*alloc)(CUdeviceptr *pointer, size_t bytes);
    CUresult (*free)(CUdeviceptr pointer);
    CUresult (*alloc_async)(CUdeviceptr *pointer, size_t bytes, CUstream stream);
    CUresult (*free_async)(CUdeviceptr pointer, CUstream stream);
};

static bool load_driver(struct driver *driver)
{
    const struct cards_lookup lookups[] = {
        {"cuInit", NULL, &driver->init},
        {"cuDeviceGet", NULL, &driver->device},
        {"cuDevicePrimaryCtxRetain", NULL, &driver->retain},
        {"cuCtxSetCurrent", NULL, &driver->current},
        {"cuMemAlloc_v2", NULL, &driver->alloc},
        {"cuMemFree_v2", NULL, &driver->free},
        {"cuMemAllocAsync", NULL, &driver->alloc_async},
        {"cuMemFreeAsync", NULL, &driver->free_async},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    return library && !cards_resolve(library, lookups, sizeof(lookups) / sizeof(*lookups));
}

static bool open_device(const struct driver *driver)
{
    CUcontext context;
    CUdevice device;

    return driver->init(0) == CUDA_SUCCESS && driver->device(&device, 0) == CUDA_SUCCESS &&
           driver->retain(&context, device) == CUDA_SUCCESS && driver->current(context) == CUDA_SUCCESS;
}

/* What is opened from another process is no memory of this one. */
static bool is_replayed(const struct timeline *timeline, const struct timeline_step *step)
{
    return step->change <= TIMELINE_FREE && step->value &&
           timeline->blocks[step->block].kind != RECORDING_IMPORT;
}

/* Stream-ordered memory comes from the driver's pools again, which round it in their own way. */
static CUresult take(const struct driver *driver, const struct timeline_block *block, CUdeviceptr *pointer)
{
    return block->kind == RECORDING_ASYNC ? driver->alloc_async(pointer, block->bytes, NULL)
                                          : driver->alloc(pointer, block->bytes);
}

static CUresult give(const struct driver *driver, const struct timeline_block *block, CUdeviceptr pointer)
{
    return block->kind == RECORDING_ASYNC ? driver->free_async(pointer, NULL) : driver->free(pointer);
}

static int replay(const struct driver *driver, const struct timeline *timeline)
{
    CUdeviceptr *pointers = calloc(timeline->block_count + 1, sizeof(*pointers));
    char size[RECORDING_TIME], at[RECORDING_TIME];
    int status = pointers ? 0 : cli_fail("replay: no memory");

    for (size_t i = 0; i < timeline->step_count && status == 0; i++) {
        const struct timeline_step *step = &timeline->steps[i];

        if (!is_replayed(timeline, step))
            continue;
        const struct timeline_block *block = &timeline->blocks[step->block];
        if (step->change == TIMELINE_FREE) {
            if (give(driver, block, pointers[step->block]) != CUDA_SUCCESS)
                status = cli_fail("replay: a release failed");
        } else if (take(driver, block, &pointers[step->block]) != CUDA_SUCCESS) {
            printf("refused: %s, which the recording has at %s\n", recording_size(step->value, size),
                   recording_time(step->time_ns, at));
            status = CLI_UNDONE;
        }
    }
    if (status == 0)
        printf("fitted: %zu blocks\n", timeline->block_count);
    free(pointers);
    return status;
}

int cmd_replay(const struct arguments *arguments)
{
    struct recording_set set;
    struct driver driver;
    int status;

    if (arguments->count != 1)
        return cli_fail("replay: usage: gpucap replay FILE");
    if ((status = recording_set_open(&set, "replay", arguments->operands, 1)))
        return status;
    if (!load_driver(&driver) || !open_device(&driver))
        status = cli_fail("replay: there is no GPU here; gpucap run --sim -- gpucap replay FILE needs none");
    else {
        if (set.track_count > 1)
            cli_fail("replay: note: of %d cards in %s only the first is replayed", set.track_count,
                     arguments->operands[0]);
        status = replay(&driver, &set.tracks[0].timeline);
    }
    return recording_set_close(&set, status);
}
