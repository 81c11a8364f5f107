/* Section ipc: a block exported, opened by another process, written there, read here. */
#include "tx.h"

#include <stdio.h>
#include <string.h>

#define BYTES 5000000u

static void as_argument(const char *what, const CUipcMemHandle *handle, char *out)
{
    out += sprintf(out, "--child=%s", what);
    for (size_t i = 0; i < sizeof(*handle); i++)
        out += sprintf(out, "%02x", ((const unsigned char *)handle)[i]);
}

static bool from_hex(const char *hex, void *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return false;
        ((unsigned char *)data)[i] = (unsigned char)byte;
    }
    return true;
}

/* What another process gets when the block has been freed. Its bytes are undefined then and not checked. */
static int open_only(CUipcMemHandle handle)
{
    CUdeviceptr p = 0;
    if (!CU(cuIpcOpenMemHandle, &p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        CU(cuIpcCloseMemHandle, p);
    return 0;
}

/* The argument is "open:" or "use:", and the handle in hexadecimal. */
int tx_ipc_child(const char *argument)
{
    CUipcMemHandle handle;
    CUdeviceptr p = 0, again = 0, base = 0;
    size_t size = 0;
    const char *hex = strchr(argument, ':');
    if (!hex || !from_hex(hex + 1, &handle, sizeof(handle)))
        return 2;
    tx_start();
    if (!strncmp(argument, "open:", 5))
        return open_only(handle);
    CU(cuIpcOpenMemHandle, &p, handle, 0);
    CU(cuIpcOpenMemHandle, NULL, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (CU(cuIpcOpenMemHandle, &p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        return 0;
    CU(cuMemGetAddressRange, &base, &size, p);
    tx_say("begins at the pointer: %s, size %zu", tx_yes(base == p), size);
    tx_say("what the parent wrote, wrong bytes: %ld", tx_wrong_bytes(p, 0x41, BYTES));
    CU(cuMemsetD8, p, 0x42, BYTES);
    CU(cuCtxSynchronize);
    CU(cuIpcOpenMemHandle, &again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    tx_say("opened twice it is at one address: %s", tx_yes(again == p));
    CU(cuIpcCloseMemHandle, again);
    tx_say("after one close it is still there, wrong bytes: %ld", tx_wrong_bytes(p, 0x42, BYTES));
    CU(cuIpcCloseMemHandle, p);
    CU(cuIpcCloseMemHandle, p);
    return 0;
}

void tx_run_ipc(void)
{
    CUipcMemHandle handle, second, inside, garbage;
    CUdeviceptr p = 0, q = 0, opened = 0;
    char use[64 + 2 * sizeof(handle)], open[64 + 2 * sizeof(handle)];
    tx_start();
    memset(&garbage, 0x5a, sizeof(garbage));
    CU(cuMemAlloc, &p, BYTES);
    CU(cuMemAlloc, &q, BYTES);
    CU(cuMemsetD8, p, 0x41, BYTES);
    CU(cuCtxSynchronize);
    CU(cuIpcGetMemHandle, NULL, p);
    CU(cuIpcGetMemHandle, &handle, 0);
    CU(cuIpcGetMemHandle, &handle, (CUdeviceptr)(uintptr_t)&handle);
    CU(cuIpcGetMemHandle, &handle, p);
    CU(cuIpcGetMemHandle, &second, p);
    tx_say("asked twice, the handle is the same: %s", tx_yes(!memcmp(&handle, &second, sizeof(handle))));
    CU(cuIpcGetMemHandle, &inside, p + 4096);
    CU(cuIpcGetMemHandle, &second, q);
    tx_say("another block has another: %s", tx_yes(memcmp(&handle, &second, sizeof(handle)) != 0));
    CU(cuIpcOpenMemHandle, &opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CU(cuIpcOpenMemHandle, &opened, garbage, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CU(cuIpcCloseMemHandle, p);
    as_argument("use:", &handle, use);
    as_argument("open:", &handle, open);
    tx_say("child ended with %d", tx_run_self((const char *[]){use, NULL}));
    tx_say("what the child wrote, wrong bytes: %ld", tx_wrong_bytes(p, 0x42, BYTES));
    CU(cuMemFree, p);
    CU(cuMemFree, q);
    tx_say("a child that opens a freed block:");
    tx_run_self((const char *[]){open, NULL});
}
