/* prog_share: how the two processes of a program share a block (prog_check.h). */
#ifndef TESTS_INTEGRATION_PROG_SHARE_H
#define TESTS_INTEGRATION_PROG_SHARE_H

#include <dirent.h>
#include <unistd.h>

#include "prog_check.h"

#define OPEN_FLAGS CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
#define BIG        (300 * MIB) /* a tight card has room for one such block, not for two */

static inline void send_handle(CUdeviceptr block)
{
    CUipcMemHandle handle;

    MUST(0, cuIpcGetMemHandle(&handle, block));
    prog_send(&handle, sizeof(handle));
}

static inline CUdeviceptr open_sent(void)
{
    CUipcMemHandle handle;
    CUdeviceptr block = 0;

    prog_receive(&handle, sizeof(handle));
    MUST(0, cuIpcOpenMemHandle(&block, handle, OPEN_FLAGS));
    return block;
}

/* The owner of a block learns asynchronously that it was closed: waits for that. */
static inline void await_room(void)
{
    CUdeviceptr big;
    int tries = 20000;

    while (cuMemAlloc(&big, BIG) != CUDA_SUCCESS)
        MUST(true, tries-- > 0 && usleep(10000) == 0);
    MUST(0, cuMemFree(big));
}

/* How many descriptors this process has. */
static inline int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    MUST(true, folder != NULL);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* Waits until threads of the library have closed their descriptors. */
static inline void await_descriptors(int wanted)
{
    for (int i = 0; i < 20000 && open_descriptors() != wanted; i++)
        usleep(10000);
    MUST(wanted, open_descriptors());
}

#endif
