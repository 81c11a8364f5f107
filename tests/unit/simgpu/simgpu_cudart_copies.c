/* Copies and fills of the simulated runtime, of every shape. Also compiled for per-thread default streams. */
#include "tests/unit/simgpu/simgpu_cudart_support.h"

#include <string.h>

#define BYTES 3000

static unsigned char in[BYTES], out[BYTES];

void setUp(void)
{
    for (size_t i = 0; i < BYTES; i++)
        in[i] = (unsigned char)(i * 7 + 1);
    memset(out, 0, sizeof(out));
    OK(cudaSetDevice(0));
}

void tearDown(void)
{
    FAILS(cudaSuccess, cudaGetLastError());
}

static void test_every_kind_of_copy_moves_the_bytes(void)
{
    void *a, *b;
    OK(cudaMalloc(&a, BYTES));
    OK(cudaMalloc(&b, BYTES));
    OK(cudaMemcpy(a, in, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(b, a, BYTES, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(out, b, BYTES, cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_MEMORY(in, out, BYTES);
    memset(out, 0, sizeof(out));
    OK(cudaMemcpy(b, in, BYTES, cudaMemcpyDefault));
    OK(cudaMemcpyAsync(out, b, BYTES, cudaMemcpyDefault, NULL));
    OK(cudaStreamSynchronize(NULL));
    TEST_ASSERT_EQUAL_MEMORY(in, out, BYTES);
    OK(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDefault));
    FAILS(cudaErrorInvalidMemcpyDirection, cudaMemcpy(a, in, 1, (enum cudaMemcpyKind)77));
    FAILS(cudaErrorInvalidMemcpyDirection, cudaGetLastError());
    OK(cudaFree(a));
    OK(cudaFree(b));
}

static void test_rows_keep_their_pitch(void)
{
    enum { WIDTH = 50, HEIGHT = 20 };
    void *p;
    size_t pitch;
    OK(cudaMallocPitch(&p, &pitch, WIDTH, HEIGHT));
    TEST_ASSERT_TRUE(pitch >= WIDTH && pitch % 256 == 0);
    OK(cudaMemset2D(p, pitch, 0, WIDTH, HEIGHT));
    OK(cudaMemcpy2D(p, pitch, in, WIDTH + 10, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DAsync(out, WIDTH, p, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost, NULL));
    OK(cudaStreamSynchronize(NULL));
    for (int row = 0; row < HEIGHT; row++)
        TEST_ASSERT_EQUAL_MEMORY(in + row * (WIDTH + 10), out + row * WIDTH, WIDTH);
    FAILS(cudaErrorInvalidPitchValue, cudaMemcpy2D(p, 1, in, 1, 2, 1, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidPitchValue, cudaGetLastError());
    OK(cudaFree(p));
}

static void test_a_box_is_copied_and_filled(void)
{
    struct cudaExtent extent = {.width = 16, .height = 4, .depth = 3};
    struct cudaPitchedPtr box;
    OK(cudaMalloc3D(&box, extent));
    struct cudaMemcpy3DParms p = {.srcPtr = {.ptr = in, .pitch = 16, .xsize = 16, .ysize = 4},
                                  .dstPtr = box,
                                  .extent = extent,
                                  .kind = cudaMemcpyHostToDevice};
    OK(cudaMemcpy3D(&p));
    struct cudaMemcpy3DParms back = {.srcPtr = box,
                                     .dstPtr = {.ptr = out, .pitch = 16, .xsize = 16, .ysize = 4},
                                     .extent = extent,
                                     .kind = cudaMemcpyDeviceToHost};
    OK(cudaMemcpy3D(&back));
    TEST_ASSERT_EQUAL_MEMORY(in, out, 16 * 4 * 3);
    OK(cudaMemset3D(box, 0x5a, extent));
    OK(cudaMemcpy3D(&back));
    TEST_ASSERT_EACH_EQUAL_HEX8(0x5a, out, 16 * 4 * 3);
    OK(cudaFree(box.ptr));
}

static void test_arrays_hold_what_was_copied_into_them(void)
{
    struct cudaChannelFormatDesc desc = cudaCreateChannelDesc(32, 32, 0, 0, cudaChannelFormatKindFloat), got;
    struct cudaExtent extent;
    cudaArray_t array;
    OK(cudaMallocArray(&array, &desc, 8, 4, cudaArrayDefault));
    OK(cudaArrayGetInfo(&got, &extent, NULL, array));
    TEST_ASSERT_EQUAL_INT(32, got.y);
    TEST_ASSERT_EQUAL_INT(0, got.z);
    TEST_ASSERT_EQUAL_INT(cudaChannelFormatKindFloat, got.f);
    TEST_ASSERT_EQUAL_UINT64(8, extent.width);
    OK(cudaMemcpy2DToArray(array, 0, 0, in, 64, 64, 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DFromArray(out, 64, array, 0, 0, 64, 4, cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_MEMORY(in, out, 256);
    struct cudaMemcpy3DParms corner = {.srcArray = array,
                                       .srcPos = {.x = 2, .y = 1},
                                       .dstPtr = {.ptr = out, .pitch = 16, .xsize = 16, .ysize = 1},
                                       .extent = {.width = 2, .height = 1, .depth = 1},
                                       .kind = cudaMemcpyDeviceToHost};
    OK(cudaMemcpy3D(&corner));
    TEST_ASSERT_EQUAL_MEMORY(in + 64 + 16, out, 16);
    OK(cudaFreeArray(array));
    desc.y = 16;
    FAILS(cudaErrorInvalidChannelDescriptor, cudaMallocArray(&array, &desc, 8, 4, cudaArrayDefault));
    FAILS(cudaErrorInvalidChannelDescriptor, cudaGetLastError());
}

static void test_peers_copy_between_two_cards(void)
{
    void *a, *b;
    int can = 0;
    OK(cudaMalloc(&a, BYTES));
    OK(cudaMemcpy(a, in, BYTES, cudaMemcpyHostToDevice));
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&b, BYTES));
    OK(cudaDeviceCanAccessPeer(&can, 1, 0));
    TEST_ASSERT_EQUAL_INT(1, can);
    OK(cudaDeviceEnablePeerAccess(0, 0));
    FAILS(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(0, 0));
    FAILS(cudaErrorPeerAccessAlreadyEnabled, cudaGetLastError());
    OK(cudaMemcpyPeer(b, 1, a, 0, BYTES));
    OK(cudaMemcpy(out, b, BYTES, cudaMemcpyDeviceToHost));
    TEST_ASSERT_EQUAL_MEMORY(in, out, BYTES);
    OK(cudaDeviceDisablePeerAccess(0));
    OK(cudaFree(b));
    OK(cudaSetDevice(0));
    OK(cudaFree(a));
}

int main(void)
{
    cudart_own_machine("2x128M;ctx=4M");
    UNITY_BEGIN();
    RUN_TEST(test_every_kind_of_copy_moves_the_bytes);
    RUN_TEST(test_rows_keep_their_pitch);
    RUN_TEST(test_a_box_is_copied_and_filled);
    RUN_TEST(test_arrays_hold_what_was_copied_into_them);
    RUN_TEST(test_peers_copy_between_two_cards);
    return UNITY_END();
}
