"""Features of CuPy and of the bare driver, each in a process of its own. Knows nothing of gpucap.

usage: features_cupy.py --list | FEATURE
"""
import ctypes

from features import feature, main

TOO_MUCH = 400 << 30
GLOBALS = r"""
__device__ float kept[1 << 22];
extern "C" __global__ void keep(const float *x) { kept[threadIdx.x] = x[threadIdx.x]; }
"""


@feature
def libraries():
    import cupy as cp
    from cupyx.scipy import ndimage, signal, sparse

    x = cp.arange(1 << 20, dtype=cp.float32)
    yield float(cp.fft.rfft(x[:4096]).real.sum())
    yield float(cp.linalg.svd(cp.eye(50))[1].sum())
    yield float(cp.sort(-x)[0])
    yield float((sparse.eye(100, format="csr") @ cp.ones(100)).sum())
    picture = cp.ones((64, 64), dtype=cp.float32)
    yield float(ndimage.gaussian_filter(picture, 2).sum())
    yield float(signal.fftconvolve(picture, picture).sum())


@feature
def kernels():
    import cupy as cp

    x = cp.arange(1 << 10, dtype=cp.float32)
    triple = cp.RawKernel('extern "C" __global__ void triple(float *x) { x[threadIdx.x] *= 3; }', "triple")
    triple((1,), (256,), (x,))
    yield float(x.sum())
    module = cp.RawModule(code=GLOBALS)
    module.get_function("keep")((1,), (32,), (x,))
    yield float(cp.ndarray((32,), cp.float32, module.get_global("kept")).sum())


@feature
def async_pool():
    import cupy as cp

    cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    for i in range(200):
        with streams[i % 4]:
            x = cp.full(1 + i * 9973, 2.0)
            last = (x * x)[-1]
    cp.cuda.Device().synchronize()
    yield float(last)
    with cp.cuda.using_allocator(cp.cuda.MemoryPool(cp.cuda.malloc_async).malloc):
        yield float(cp.ones(1 << 20).sum())


@feature
def graph():
    import cupy as cp

    stream, x = cp.cuda.Stream(non_blocking=True), cp.ones(1000)
    y = cp.empty_like(x)
    with stream:
        cp.multiply(x, 2, out=y)
        stream.synchronize()
        stream.begin_capture()
        cp.multiply(x, 2, out=y)
        cp.add(y, 1, out=y)
        captured = stream.end_capture()
    for _ in range(5):
        captured.launch(stream)
    stream.synchronize()
    yield float(y.sum())


@feature
def arrays():
    import cupy as cp
    from cupy.cuda import texture

    float_channel = texture.ChannelFormatDescriptor(32, 0, 0, 0, cp.cuda.runtime.cudaChannelFormatKindFloat)
    for i in range(50):
        array = texture.CUDAarray(float_channel, 64 + i, 64)
        ones = cp.ones((64, 64 + i), dtype=cp.float32)
        array.copy_from(ones)
        back = cp.empty_like(ones)
        array.copy_to(back)
    yield float(back.sum())


@feature
def host_and_events():
    import cupy as cp

    yield cp.cuda.alloc_pinned_memory(1 << 20).size() >= 1 << 20
    events = [cp.cuda.Event() for _ in range(50)]
    for event in events:
        event.record()
    cp.cuda.Device().synchronize()
    yield cp.cuda.get_elapsed_time(events[0], events[-1]) >= 0
    cp.get_default_memory_pool().free_all_blocks()
    cp.get_default_pinned_memory_pool().free_all_blocks()


@feature
def refused():
    import cupy as cp

    cp.cuda.set_allocator(None)
    try:
        cp.cuda.alloc(TOO_MUCH)
        yield "granted"
    except (cp.cuda.runtime.CUDARuntimeError, cp.cuda.memory.OutOfMemoryError) as error:
        yield str(error)
    yield float(sum(x[0] for x in [cp.ones(1 << (i % 20)) for i in range(500)]))
    cp.get_default_memory_pool().set_limit(1 << 30)
    cp.cuda.set_allocator(cp.get_default_memory_pool().malloc)
    try:
        cp.zeros(2 << 30, dtype=cp.uint8)
        yield "granted"
    except cp.cuda.memory.OutOfMemoryError:
        yield "refused by its own limit"


@feature
def resets():
    driver, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(64 << 20)
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    yield driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(device), 0)
    for _ in range(10):
        yield (driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), driver.cuCtxSetCurrent(context),
               driver.cuMemAlloc_v2(ctypes.byref(address), size), driver.cuMemsetD8_v2(address, 1, size),
               driver.cuDevicePrimaryCtxReset_v2(device), driver.cuMemFree_v2(address),
               driver.cuDevicePrimaryCtxRelease_v2(device))


if __name__ == "__main__":
    main()
