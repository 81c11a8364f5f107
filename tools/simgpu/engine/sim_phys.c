/* sim_phys: the memory of the simulated cards. See sim_phys.h. */
#include "tools/simgpu/engine/sim_phys.h"

#include "tools/simgpu/engine/sim_card.h"
#include "tools/simgpu/engine/sim_device.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MEMORY_SIZE                                                                                          \
    (INT64_C(1) << 55) /* sparse, so that the size costs nothing and no range need be reused */
#define FILE_SIZE                                                                                            \
    (MEMORY_SIZE + (MEMORY_SIZE >> 6)) /* behind the memory: 8 bytes for the mark of each 512 bytes */
#define MARK_UNIT 512

static int common_fd = -1;
static off_t next_offset;
static void (*keeper)(CUdevice device);

uint64_t sim_phys_round(uint64_t size)
{
    uint64_t rounded = (size + PHYS_GRANULE - 1) & ~(PHYS_GRANULE - 1);

    return rounded < size ? 0 : rounded;
}

/* Opens a file in memory. Raises the limit of open files as far as the process may, before half of it is used
 * up: a pool of gigabytes in chunks that may be exported needs thousands of files, most systems begin with a
 * limit of 1,024, and the program opens files as well. */
static int open_file(void)
{
    const int fd = memfd_create("simgpu", MFD_CLOEXEC);
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) || (fd >= 0 && (rlim_t)fd < files.rlim_cur / 2))
        return fd;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    return fd >= 0 ? fd : memfd_create("simgpu", MFD_CLOEXEC);
}

static int make_file(int64_t size)
{
    int fd = open_file();

    if (fd >= 0 && ftruncate(fd, size) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static CUresult place(struct sim_phys *phys, bool exportable)
{
    if (exportable) {
        phys->fd = make_file((int64_t)phys->size);
        phys->own_file = true;
        return phys->fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    }
    if (common_fd < 0)
        common_fd = make_file(FILE_SIZE);
    if (common_fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if ((uint64_t)(MEMORY_SIZE - next_offset) < phys->size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    phys->fd = common_fd;
    phys->offset = next_offset;
    next_offset += (off_t)phys->size;
    return CUDA_SUCCESS;
}

static CUresult create(CUdevice device, uint64_t size, uint64_t paid, bool exportable, struct sim_phys **out)
{
    struct sim_phys *phys;
    CUresult result;

    size = sim_phys_round(size);
    if (size == 0 || size > (uint64_t)MEMORY_SIZE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    phys = calloc(1, sizeof(*phys));
    if (!phys)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *phys = (struct sim_phys){.device = device, .fd = -1, .size = size, .refs = 1};
    if (device != PHYS_HOST && sim_card_charge(sim_device_get(device)->card, size - paid) != 0) {
        free(phys);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = place(phys, exportable);
    if (result != CUDA_SUCCESS) {
        if (device != PHYS_HOST)
            sim_card_uncharge(sim_device_get(device)->card, size - paid);
        free(phys);
        return result;
    }
    *out = phys;
    return CUDA_SUCCESS;
}

void sim_phys_set_keeper(void (*give_back)(CUdevice device))
{
    keeper = give_back;
}

void sim_phys_make_room(CUdevice device)
{
    if (keeper && device != PHYS_HOST)
        keeper(device);
}

static CUresult create_with_room(CUdevice device, uint64_t size, uint64_t paid, bool exportable,
                                 struct sim_phys **out)
{
    CUresult result = create(device, size, paid, exportable, out);

    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    sim_phys_make_room(device);
    return create(device, size, paid, exportable, out);
}

CUresult sim_phys_create(CUdevice device, uint64_t size, bool exportable, struct sim_phys **out)
{
    return create_with_room(device, size, 0, exportable, out);
}

CUresult sim_phys_try(CUdevice device, uint64_t size, struct sim_phys **out)
{
    return create(device, size, 0, false, out);
}

CUresult sim_phys_create_paid(CUdevice device, uint64_t size, uint64_t paid, struct sim_phys **out)
{
    return create_with_room(device, size, paid, false, out);
}

CUresult sim_phys_adopt(CUdevice device, int fd, off_t offset, uint64_t size, struct sim_phys **out)
{
    struct sim_phys *phys = calloc(1, sizeof(*phys));

    if (!phys)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *phys = (struct sim_phys){.device = device,
                              .foreign = true,
                              .own_file = true,
                              .fd = fd,
                              .offset = offset,
                              .size = size,
                              .refs = 1};
    *out = phys;
    return CUDA_SUCCESS;
}

static off_t mark_of(off_t offset)
{
    return MEMORY_SIZE + offset / MARK_UNIT * (off_t)sizeof(uint64_t);
}

bool sim_phys_mark(const struct sim_phys *phys, uint64_t inside, uint64_t mark)
{
    off_t at = mark_of(phys->offset + (off_t)inside);

    return pwrite(phys->fd, &mark, sizeof(mark), at) == (ssize_t)sizeof(mark);
}

uint64_t sim_phys_read_mark(int fd, off_t offset)
{
    uint64_t mark = 0;

    return pread(fd, &mark, sizeof(mark), mark_of(offset)) == (ssize_t)sizeof(mark) ? mark : 0;
}

void sim_phys_hold(struct sim_phys *phys)
{
    phys->refs++;
}

void sim_phys_drop(struct sim_phys *phys)
{
    if (--phys->refs > 0)
        return;
    if (phys->own_file)
        close(phys->fd);
    else
        fallocate(phys->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, phys->offset, (off_t)phys->size);
    if (!phys->foreign && !phys->paid && phys->device != PHYS_HOST)
        sim_card_uncharge(sim_device_get(phys->device)->card, phys->size);
    free(phys);
}

void sim_phys_drop_paid(struct sim_phys *phys)
{
    phys->paid = true;
    sim_phys_drop(phys);
}
