/* simgpu_ipc: memory and events of one process in another, on the simulated driver. All of it runs in child
 * processes. */
#include "tests/unit/simgpu/simgpu_support.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void setUp(void) {}

void tearDown(void) {}

/* Runs exporter and importer in two processes with a socket between them. */
static int pair(int (*exporter)(int socket), int (*importer)(int socket))
{
    int sockets[2], status, mine;
    pid_t pid;

    MUST(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    pid = fork();
    if (pid == 0) {
        close(sockets[0]);
        _exit(importer(sockets[1]));
    }
    close(sockets[1]);
    mine = exporter(sockets[0]);
    MUST(pid, waitpid(pid, &status, 0));
    MUST(0, status);
    return mine;
}

/* ---- legacy handles ---- */

static int export_legacy(int socket)
{
    CUipcMemHandle handles[2];
    unsigned int seen = 0;
    CUdeviceptr large, small, own;
    char byte;

    MUST(0, sim_make_current());
    MUST(0, cuMemAlloc(&large, 5000000));
    MUST(0, cuMemAlloc(&own, 512));
    MUST(0, cuMemAlloc(&small, 4096));
    MUST(0, cuMemsetD32(large, 11, 5000000 / 4));
    MUST(0, cuMemsetD32(small, 22, 1024));
    MUST(0, cuCtxSynchronize());
    MUST(0, cuIpcGetMemHandle(&handles[0], large));
    MUST(0, cuIpcGetMemHandle(&handles[1], small));
    MUST(CUDA_ERROR_INVALID_CONTEXT,
         cuIpcOpenMemHandle(&own, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST((int)sizeof(handles), write(socket, handles, sizeof(handles)));
    MUST(1, read(socket, &byte, 1));
    MUST(0, cuMemcpyDtoH(&seen, large + 8, 4));
    MUST(33, seen);
    MUST(0, cuMemFree(large));
    MUST(0, cuMemFree(small));
    MUST(1, write(socket, "x", 1));
    MUST(1, read(socket, &byte, 1));
    return 0;
}

static int import_legacy(int socket)
{
    CUipcMemHandle handles[2];
    unsigned int seen = 0, three = 33;
    CUdeviceptr large, small, again, base;
    size_t before, with, total, size;
    char byte;

    MUST(0, sim_make_current());
    MUST((int)sizeof(handles), read(socket, handles, sizeof(handles)));
    MUST(0, cuMemGetInfo(&before, &total));
    MUST(1, cuIpcOpenMemHandle(&large, handles[0], 0));
    MUST(0, cuIpcOpenMemHandle(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(0, cuIpcOpenMemHandle(&again, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(1, again == large);
    MUST(0, cuIpcOpenMemHandle(&small, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(0, cuMemGetInfo(&with, &total));
    MUST(1, with == before);
    MUST(0, cuMemGetAddressRange(&base, &size, large));
    MUST(1, base == large && size == 5000000);
    MUST(0, cuMemcpyDtoH(&seen, large + 4999996, 4));
    MUST(11, seen);
    MUST(0, cuMemcpyDtoH(&seen, small, 4));
    MUST(22, seen);
    MUST(0, cuMemcpyHtoD(large + 8, &three, 4));
    MUST(0, cuCtxSynchronize());
    MUST(1, cuMemFree(large));
    MUST(0, cuIpcCloseMemHandle(large));
    MUST(0, cuIpcCloseMemHandle(large));
    MUST(1, cuIpcCloseMemHandle(large));
    MUST(0, cuIpcCloseMemHandle(small));
    MUST(0, simgpu_leaks());
    MUST(1, write(socket, "x", 1));
    MUST(1, read(socket, &byte, 1));
    MUST(1, cuIpcOpenMemHandle(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)); /* freed meanwhile */
    MUST(1, cuIpcOpenMemHandle(&small, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    memset(&handles[0], 0x5a, sizeof(handles[0]));
    MUST(1, cuIpcOpenMemHandle(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(1, write(socket, "x", 1));
    return 0;
}

static int legacy(void)
{
    return pair(export_legacy, import_legacy);
}

/* Ends with its block exported. */
static int export_and_end(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr block;
    char byte;

    MUST(0, sim_make_current());
    MUST(0, cuMemAlloc(&block, 5000000));
    MUST(0, cuIpcGetMemHandle(&handle, block));
    MUST((int)sizeof(handle), write(socket, &handle, sizeof(handle)));
    MUST(1, read(socket, &byte, 1));
    return 0;
}

static unsigned int flag(CUpointer_attribute attribute, CUdeviceptr at)
{
    unsigned int value = 99;

    return cuPointerGetAttribute(&value, attribute, at) == CUDA_SUCCESS ? value : 98;
}

/* An opened block is not quite one of cuMemAlloc (measured). */
static int look_at_opened(CUdeviceptr block)
{
    size_t mapped = 0;

    MUST(0, flag(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, block));
    MUST(0, flag(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block));
    MUST(0, flag(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, block));
    MUST(1, flag(CU_POINTER_ATTRIBUTE_MAPPED, block));
    MUST(0, cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, block + 4999999));
    MUST(1, mapped == 6 * MIB);
    return 0;
}

static int open_after_its_end(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr block;
    char byte;

    MUST(0, sim_make_current());
    MUST((int)sizeof(handle), read(socket, &handle, sizeof(handle)));
    MUST(0, cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(0, look_at_opened(block));
    MUST(0, cuIpcCloseMemHandle(block));
    MUST(1, write(socket, "x", 1));
    MUST(0, read(socket, &byte, 1)); /* the exporter has ended */
    MUST(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return 0;
}

/* Here the child exports. */
static int exporter_ends(void)
{
    return pair(open_after_its_end, export_and_end);
}

static void test_a_legacy_handle_opens_the_same_memory_in_another_process(void)
{
    TEST_ASSERT_EQUAL_INT(0, sim_in_child(legacy));
}

static void test_a_handle_of_a_process_that_has_ended_is_invalid(void)
{
    TEST_ASSERT_EQUAL_INT(0, sim_in_child(exporter_ends));
}

/* ---- file descriptors ---- */

#define CHUNK (4 * MIB)

static int map_it(CUmemGenericAllocationHandle handle, CUdeviceptr *out)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    MUST(0, cuMemAddressReserve(out, CHUNK, 0, 0, 0));
    MUST(0, cuMemMap(*out, CHUNK, 0, handle, 0));
    MUST(0, cuMemSetAccess(*out, CHUNK, &access, 1));
    MUST(0, cuMemRelease(handle));
    return 0;
}

static int send_fd(int socket, int fd)
{
    char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);

    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &fd, sizeof(fd));
    return sendmsg(socket, &message, 0) == 1 ? 0 : 1;
}

static int receive_fd(int socket)
{
    char byte, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    int fd = -1;

    if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static int export_fd(int socket)
{
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    unsigned int seen = 0;
    CUdeviceptr p;
    char byte;
    int fd;

    MUST(0, sim_make_current());
    MUST(0, cuMemCreate(&handle, CHUNK, &props, 0));
    MUST(0, cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST(0, map_it(handle, &p));
    MUST(0, cuMemsetD32(p, 44, CHUNK / 4));
    MUST(0, cuCtxSynchronize());
    MUST(0, send_fd(socket, fd));
    close(fd);
    MUST(1, read(socket, &byte, 1));
    MUST(0, cuMemcpyDtoH(&seen, p, 4));
    MUST(55, seen);
    MUST(0, cuMemUnmap(p, CHUNK));
    MUST(0, cuMemAddressFree(p, CHUNK));
    MUST(0, simgpu_leaks());
    return 0;
}

static int import_fd(int socket)
{
    CUmemGenericAllocationHandle handle;
    unsigned int seen = 0, five = 55;
    size_t before, with, total;
    CUdeviceptr p;
    int fd;

    MUST(0, sim_make_current());
    fd = receive_fd(socket);
    MUST(0, cuMemGetInfo(&before, &total));
    MUST(0, cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    MUST(0, map_it(handle, &p));
    MUST(0, cuMemGetInfo(&with, &total));
    MUST(1, before == with);
    MUST(0, cuMemcpyDtoH(&seen, p + CHUNK - 4, 4));
    MUST(44, seen);
    MUST(0, cuMemcpyHtoD(p, &five, 4));
    MUST(0, cuCtxSynchronize());
    MUST(0, cuMemUnmap(p, CHUNK));
    MUST(0, cuMemAddressFree(p, CHUNK));
    MUST(0, simgpu_leaks());
    MUST(1, write(socket, "x", 1));
    return 0;
}

static int descriptor(void)
{
    return pair(export_fd, import_fd);
}

static void test_an_exported_descriptor_is_the_same_memory_in_another_process(void)
{
    TEST_ASSERT_EQUAL_INT(0, sim_in_child(descriptor));
}

/* ---- events ---- */

static void until_told(void *data)
{
    char byte;

    if (read(*(int *)data, &byte, 1) != 1)
        _exit(3);
}

static int export_event(int socket)
{
    CUipcEventHandle handle;
    CUevent event, plain;
    char byte;

    MUST(0, sim_make_current());
    MUST(1, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    MUST(0, cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    MUST(1, cuIpcGetEventHandle(&handle, plain));
    MUST(0, cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    MUST(0, cuIpcGetEventHandle(&handle, event));
    MUST(0, cuLaunchHostFunc(NULL, until_told, &socket));
    MUST(0, cuEventRecord(event, NULL));
    MUST(600, cuEventQuery(event));
    MUST((int)sizeof(handle), write(socket, &handle, sizeof(handle)));
    MUST(0, cuEventSynchronize(event));
    MUST(0, cuEventQuery(event));
    MUST(1, write(socket, "x", 1));
    MUST(1, read(socket, &byte, 1));
    MUST(0, cuEventDestroy(event));
    MUST(0, cuEventDestroy(plain));
    MUST(0, simgpu_leaks());
    return 0;
}

static int import_event(int socket)
{
    CUipcEventHandle handle;
    CUevent event;
    char byte;

    MUST(0, sim_make_current());
    MUST((int)sizeof(handle), read(socket, &handle, sizeof(handle)));
    MUST(0, cuIpcOpenEventHandle(&event, handle));
    MUST(600, cuEventQuery(event));
    MUST(0, cuStreamWaitEvent(NULL, event, 0));
    MUST(600, cuStreamQuery(NULL));
    MUST(1, write(socket, "x", 1));
    MUST(0, cuStreamSynchronize(NULL));
    MUST(0, cuEventSynchronize(event));
    MUST(1, read(socket, &byte, 1));
    MUST(0, cuEventDestroy(event));
    MUST(1, write(socket, "x", 1));
    return 0;
}

static int events(void)
{
    return pair(export_event, import_event);
}

static void test_an_interprocess_event_is_waited_for_by_another_process(void)
{
    TEST_ASSERT_EQUAL_INT(0, sim_in_child(events));
}

int main(void)
{
    sim_machine("1x1G");
    UNITY_BEGIN();
    RUN_TEST(test_a_legacy_handle_opens_the_same_memory_in_another_process);
    RUN_TEST(test_a_handle_of_a_process_that_has_ended_is_invalid);
    RUN_TEST(test_an_exported_descriptor_is_the_same_memory_in_another_process);
    RUN_TEST(test_an_interprocess_event_is_waited_for_by_another_process);
    return UNITY_END();
}
