"""Features of PyTorch and of what is built on it, each in a process of its own. Knows nothing of gpucap.

usage: features_torch.py --list | FEATURE
"""
import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile

from features import FEATURES, bits, feature, main

TOO_MUCH = 400 << 30
UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"


def cached(function):
    """Features that PyTorch itself has only with its cache."""

    def run():
        os.environ.pop(UNCACHED, None)
        yield from function()

    FEATURES[function.__name__] = run
    return run


def perceptron(torch, width=512):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)).cuda()


def train(torch, model, sizes, width=512, optimizer=None):
    """Returns the last loss of a step for each size."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters())
    for i, size in enumerate(sizes):
        torch.manual_seed(i)
        loss = model(torch.randn(size, width, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return f"{loss.item():.6f}"


def build(source, name, *options):
    """Compiles a library; returns its path."""
    folder = tempfile.mkdtemp()
    with open(f"{folder}/{name}", "w") as file:
        file.write(source)
    subprocess.run(["nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", f"{folder}/{name}.so", f"{folder}/{name}", *options],
                   check=True)
    return f"{folder}/{name}.so"


# ---- compiled programs and graphs ----

def compiled(mode):
    import torch

    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True).cuda()
    for weight in layer.parameters():
        torch.nn.init.constant_(weight, 0.01)
    optimizer = torch.optim.SGD(layer.parameters(), 0.01)
    run = torch.compile(layer, mode=mode)
    torch.manual_seed(1)
    for size in (8, 8, 16, 8, 16, 8):
        loss = run(torch.randn(size, 64, 256, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield f"{loss.item():.4e}"


@feature
def compile_default():
    return compiled("default")


@cached
def compile_with_graphs():
    return compiled("reduce-overhead")


@cached
def graphed_callables():
    import torch

    model = perceptron(torch)
    run = torch.cuda.make_graphed_callables(model, (torch.randn(64, 512, device="cuda", requires_grad=True),))
    for i in range(20):
        torch.manual_seed(i)
        run(torch.randn(64, 512, device="cuda")).square().sum().backward()
    yield bits(model[0].weight.grad)


@cached
def graphs_of_one_pool():
    import torch

    model, pool, graphs = perceptron(torch), torch.cuda.graph_pool_handle(), []
    for size in (8, 64, 256, 32):
        x, stream = torch.ones(size, 512, device="cuda"), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            y = model(x)
        graphs.append((graph, x, y))
    for round_ in range(3):
        for graph, x, y in graphs:
            x.fill_(round_ + 1)
            graph.replay()
            yield bits(y)
    del graphs, graph, x, y
    torch.cuda.empty_cache()
    yield bits(model(torch.ones(3, 512, device="cuda")))


@feature
def triton_kernel():
    import torch

    folder = tempfile.mkdtemp()
    with open(f"{folder}/double.py", "w") as file:  # Triton reads a kernel's source from its file
        file.write("""import triton
import triton.language as tl

@triton.autotune([triton.Config({"SIZE": size}) for size in (128, 1024)], key=["count"])
@triton.jit
def double(x, y, count, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + at, tl.load(x + at, mask=at < count) * 2, mask=at < count)
""")
    sys.path.insert(0, folder)
    import double

    for count in (1000, 1 << 20):
        x = torch.arange(count, device="cuda", dtype=torch.float32)
        y = torch.empty_like(x)
        double.double[lambda chosen: (-(-count // chosen["SIZE"]),)](x, y, count)
        yield y.sum().item()


@feature
def attention():
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(0)
    x = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            y = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
            y.sum().backward()
            yield bits(y)


# ---- memory ----

ALLOCATORS = r"""
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <map>
#include <mutex>

static std::mutex lock;
static std::map<void *, std::pair<CUmemGenericAllocationHandle, size_t>> blocks;

extern "C" void *malloc_alloc(ssize_t bytes, int, cudaStream_t)
{
    void *block = nullptr;
    cudaMalloc(&block, bytes);
    return block;
}
extern "C" void malloc_free(void *block, ssize_t, int, cudaStream_t) { cudaFree(block); }
extern "C" void *async_alloc(ssize_t bytes, int, cudaStream_t stream)
{
    void *block = nullptr;
    cudaMallocAsync(&block, bytes, stream);
    return block;
}
extern "C" void async_free(void *block, ssize_t, int, cudaStream_t stream) { cudaFreeAsync(block, stream); }
extern "C" void *mapped_alloc(ssize_t bytes, int device, cudaStream_t)
{
    CUmemAllocationProp prop = {};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t page;
    cudaFree(nullptr);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    const size_t whole = (bytes + page - 1) / page * page;
    if (cuMemAddressReserve(&at, whole, 0, 0, 0) || cuMemCreate(&handle, whole, &prop, 0) ||
        cuMemMap(at, whole, 0, handle, 0))
        return nullptr;
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuMemSetAccess(at, whole, &access, 1);
    std::lock_guard<std::mutex> held(lock);
    blocks[(void *)at] = {handle, whole};
    return (void *)at;
}
extern "C" void mapped_free(void *block, ssize_t, int, cudaStream_t stream)
{
    cudaStreamSynchronize(stream);
    std::lock_guard<std::mutex> held(lock);
    const auto found = blocks[block];
    blocks.erase(block);
    cuMemUnmap((CUdeviceptr)block, found.second);
    cuMemRelease(found.first);
    cuMemAddressFree((CUdeviceptr)block, found.second);
}
"""


def own_allocator(kind):
    import torch

    path = build(ALLOCATORS, "allocators.cpp", "-lcuda")
    torch.cuda.memory.change_current_allocator(
        torch.cuda.memory.CUDAPluggableAllocator(path, f"{kind}_alloc", f"{kind}_free"))
    yield train(torch, perceptron(torch), [16 + 7 * i for i in range(30)])


@feature
def own_allocator_malloc():
    return own_allocator("malloc")


@feature
def own_allocator_async():
    return own_allocator("async")


@feature
def own_allocator_mapped():
    return own_allocator("mapped")


def configured(settings, share=None):
    """A training on two streams, a request that is refused, and work after it. `share`: what PyTorch may use of the card."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
    import torch

    if share:
        torch.cuda.set_per_process_memory_fraction(share)
    model, side = perceptron(torch, 1024), torch.cuda.Stream()
    main_stream, optimizer = torch.cuda.default_stream(), torch.optim.AdamW(model.parameters())
    for i in range(40):
        torch.manual_seed(i)
        x = torch.randn(100 + 37 * (i % 7), 1024, device="cuda")
        with torch.cuda.stream(side):
            side.wait_stream(main_stream)
            y = x * 2
            x.record_stream(side)
        main_stream.wait_stream(side)
        y.record_stream(main_stream)
        loss = model(y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    yield f"{loss.item():.6f}"
    try:
        torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")
        yield "granted"
    except torch.cuda.OutOfMemoryError:
        yield "refused"
    yield f"{model(y).square().mean().item():.6f}"


@cached
def expandable_segments():
    return configured("expandable_segments:True", 0.05)  # it fills its share before it is refused


@cached
def async_backend():
    return configured("backend:cudaMallocAsync")


@cached
def split_and_rounded():
    return configured("max_split_size_mb:64,garbage_collection_threshold:0.6,roundup_power2_divisions:4")


@cached
def registered_host_memory():
    return configured("pinned_use_cuda_host_register:True,pinned_num_register_threads:4")


@cached
def own_pool():
    import torch

    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        ones, zeros = torch.ones(16 << 20, device="cuda"), torch.zeros(3 << 20, device="cuda")
    yield ones.sum().item(), zeros.sum().item(), len(pool.snapshot()) > 0
    del ones, zeros, pool
    torch.cuda.empty_cache()
    yield torch.cuda.memory_allocated()


@cached
def snapshot():
    import torch

    torch.cuda.memory._record_memory_history()
    perceptron(torch)(torch.ones(9, 512, device="cuda")).sum().backward()
    segments = torch.cuda.memory_snapshot()
    yield len(segments), sum(segment["total_size"] for segment in segments), torch.cuda.max_memory_allocated()


@cached
def shares_of_a_card():
    import torch

    torch.cuda.set_per_process_memory_fraction(0.05)
    kept = []
    try:
        while True:
            kept.append(torch.empty(1 << 28, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        _, total = torch.cuda.mem_get_info()
        yield abs(len(kept) * (1 << 28) - total * 0.05) < 1 << 30
    del kept
    yield train(torch, perceptron(torch), [64] * 5)


@feature
def many_tensors():
    import torch

    tensors = [torch.full((1 + i % 5000,), 1.0, device="cuda") for i in range(20000)]
    yield sum(tensor.numel() for tensor in tensors), torch.stack([tensor[0] for tensor in tensors]).sum().item()
    del tensors[::2]
    torch.cuda.empty_cache()
    yield torch.stack([tensor[-1] for tensor in tensors]).sum().item()


@feature
def threads():
    import threading

    import torch

    sums = [0.0] * 8

    def run(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            for k in range(60):
                x = torch.full((1 + (k * 7919 + i * 104729) % (1 << 20),), float(i), device="cuda")
                sums[i] += float((x * 2)[0])
                if k % 20 == 19:
                    torch.cuda.empty_cache()

    running = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    yield sums


# ---- processes ----

def take_and_send(questions, answers, end):
    import torch

    for _ in range(10):
        tensor = questions.get()
        answers.put(float(tensor.sum()))
        del tensor
    answers.put(torch.full((1 << 20,), 3.0, device="cuda"))
    end.wait()


@cached
def shared_tensors():
    import torch
    import torch.multiprocessing

    processes = torch.multiprocessing.get_context("spawn")
    questions, answers, end = processes.Queue(), processes.Queue(), processes.Event()
    other = processes.Process(target=take_and_send, args=(questions, answers, end))
    other.start()
    kept = []
    for i in range(10):
        kept.append(torch.ones(1 << (10 + i), device="cuda"))
        questions.put(kept[-1])
        yield answers.get()
    received = answers.get()
    yield received.sum().item()
    del received
    end.set()
    other.join()
    yield other.exitcode


@feature
def loader_with_workers():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    batches = DataLoader(TensorDataset(torch.randn(4096, 64)), 128, num_workers=4, pin_memory=True)
    yield f"{sum(x.cuda(non_blocking=True).sum().item() for x, in batches):.3f}"


@feature
def fork_after_use():
    import torch

    torch.ones(1, device="cuda")
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "no error"
        with contextlib.suppress(OSError):
            try:
                torch.ones(1, device="cuda")
            except RuntimeError as error:
                answer = str(error).split(".")[0]
            os.write(ends[1], answer.encode())
        os._exit(0)
    os.waitpid(child, 0)
    yield os.read(ends[0], 200).decode()
    yield torch.ones(5, device="cuda").sum().item()


@contextlib.contextmanager
def group():
    """A NCCL group of this process alone."""
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1", NCCL_SOCKET_IFNAME="lo")
    dist.init_process_group("nccl")
    yield dist
    dist.destroy_process_group()


@feature
def collectives():
    import torch

    with group() as dist:
        x = torch.ones(1 << 24, device="cuda")
        parts = [torch.empty_like(x)]
        dist.all_reduce(x)
        dist.all_gather(parts, x)
        dist.broadcast(x, 0)
        dist.reduce_scatter(x, parts)
        dist.barrier()
        yield x.sum().item()


@feature
def data_parallel():
    import torch

    with group():
        yield train(torch, torch.nn.parallel.DistributedDataParallel(perceptron(torch)), [32] * 10)


@feature
def fully_sharded():
    import torch
    from torch.distributed.fsdp import fully_shard

    with group():
        model = perceptron(torch)
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        yield train(torch, model, [32] * 10)


@feature
def symmetric_memory():
    import torch
    import torch.distributed._symmetric_memory as symmetric

    with group() as dist:
        x = symmetric.empty(1 << 20, device="cuda")
        handle = symmetric.rendezvous(x, dist.group.WORLD)
        x.fill_(2)
        handle.barrier()
        yield x.sum().item(), handle.world_size


# ---- libraries and devices ----

@feature
def linear_algebra():
    import torch

    torch.manual_seed(0)
    x = torch.randn(600, 600, device="cuda", dtype=torch.float64)
    square = x @ x.T + torch.eye(600, device="cuda", dtype=torch.float64)
    for name in ("eigvalsh", "svdvals", "inv", "cholesky", "eigvals"):
        yield f"{getattr(torch.linalg, name)(square).abs().sum().log().item():.5g}"
    for size in range(100, 400, 30):
        yield f"{torch.fft.fft2(torch.ones(size, size + 1, device='cuda')).abs().sum().item():.3f}"
    yield (torch.eye(300, device="cuda").to_sparse_csr() @ torch.ones(300, 7, device="cuda")).sum().item()


@feature
def recurrent_and_convolutions():
    import torch

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    y, _ = torch.nn.LSTM(64, 128, 2).cuda()(torch.randn(50, 8, 64, device="cuda"))
    y.sum().backward()
    yield f"{y.abs().sum().item():.3f}"
    for side in (1, 3, 5, 7):
        y = torch.nn.Conv2d(16, 32, side).cuda()(torch.ones(8, 16, 65, 65, device="cuda"))
        yield f"{y.abs().sum().log().item():.1f}"


@feature
def eight_bits():
    import torch

    x, one = torch.ones(256, 256, device="cuda").to(torch.float8_e4m3fn), torch.ones((), device="cuda")
    yield torch._scaled_mm(x, x.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16).float().sum().item()


@feature
def mixed_precision():
    import torch

    model, scaler = perceptron(torch), torch.amp.GradScaler()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, foreach=True)
    for i in range(10):
        torch.manual_seed(i)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(64, 512, device="cuda")).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    yield f"{loss.item():.4f}", scaler.get_scale()


@feature
def recomputed_and_saved():
    import torch
    from torch.utils.checkpoint import checkpoint

    model, x = perceptron(torch), torch.randn(64, 512, device="cuda", requires_grad=True)
    checkpoint(model, x, use_reentrant=False).sum().backward()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        model(x).sum().backward()
    yield bits(model[0].weight.grad)
    path, other = f"{tempfile.mkdtemp()}/saved", perceptron(torch)
    torch.save(model.state_dict(), path)
    other.load_state_dict(torch.load(path, map_location="cuda"))
    yield all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))


@feature
def profiler():
    import torch
    from torch.profiler import ProfilerActivity, profile

    model = perceptron(torch)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiled:
        for _ in range(5):
            model(torch.ones(64, 512, device="cuda")).sum().backward()
        torch.cuda.synchronize()
    yield sum(event.device_type.name == "CUDA" for event in profiled.events()) > 20


@feature
def kernel_with_heap():
    import torch

    path = build("""
__device__ float kept[1 << 20];
__global__ void add(float *x, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float *own = (float *)malloc(64);
    own[0] = x[i];
    kept[i] = own[0];
    free(own);
    x[i] = kept[i] + 1;
}
extern "C" int run(float *x, int count)
{
    cudaDeviceSetLimit(cudaLimitMallocHeapSize, 64 << 20);
    add<<<(count + 255) / 256, 256>>>(x, count);
    return cudaDeviceSynchronize();
}
""", "heap.cu")
    x = torch.zeros(100000, device="cuda")
    yield ctypes.CDLL(path).run(ctypes.c_void_p(x.data_ptr()), 100000), x.sum().item()


@feature
def green_context():
    import torch

    context = torch.cuda.green_contexts.GreenContext.create(16, 0)
    context.set_context()
    x = torch.ones(1 << 20, device="cuda")
    yield (x * 2).sum().item()
    context.pop_context()
    yield x.sum().item()


@cached
def fault_in_a_kernel():
    import torch

    x = torch.ones(5, device="cuda")
    try:
        x[torch.tensor([99], device="cuda")].sum().item()
        yield "no error"
    except RuntimeError as error:
        yield type(error).__name__, "device-side assert" in str(error)
    try:
        torch.ones(1 << 20, device="cuda").sum().item()
        yield "no error"
    except RuntimeError as error:
        yield type(error).__name__


# ---- what is built on PyTorch ----

@feature
def generation():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4)).cuda().eval()
    text = model.generate(torch.randint(0, 1000, (4, 16), device="cuda"), max_new_tokens=64, do_sample=False, pad_token_id=0)
    yield tuple(text.shape), int(text.sum())


@feature
def detection():
    import torch
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5).cuda()
    for i in range(3):
        pictures = [torch.rand(3, 200 + 30 * i, 300, device="cuda") for _ in range(2)]
        boxes = {"boxes": torch.tensor([[10.0, 10, 90, 90]], device="cuda"), "labels": torch.tensor([1], device="cuda")}
        loss = sum(model(pictures, [boxes, boxes]).values())
        loss.backward()
        yield torch.isfinite(loss).item()


@feature
def message_passing():
    import torch
    from torch_geometric.nn import GCNConv

    torch.manual_seed(0)
    edges = torch.randint(0, 1000, (2, 5000), device="cuda")
    yield f"{GCNConv(64, 32).cuda()(torch.ones(1000, 64, device='cuda'), edges).abs().sum().item():.2f}"


@feature
def gaussian_process():
    import gpytorch
    import torch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.RBFKernel()

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    torch.manual_seed(0)
    x = torch.linspace(0, 1, 1500, device="cuda")
    y, likelihood = torch.sin(x * 6), gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Model(x, y, likelihood).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(10):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
    yield f"{loss.item():.2f}"


@feature
def differential_equation():
    import torch
    from torchdiffeq import odeint_adjoint

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = perceptron(torch, 64)

        def forward(self, _, y):
            return torch.tanh(self.inner(y))

    y = odeint_adjoint(Field(), torch.ones(32, 64, device="cuda"), torch.linspace(0, 1, 5, device="cuda"))
    y.sum().backward()
    yield f"{y.sum().item():.3f}"


@feature
def lightning():
    import logging

    import pytorch_lightning
    import torch

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = perceptron(torch)

        def training_step(self, batch, _):
            return self.inner(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    torch.manual_seed(0)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(512, 512)), 64)
    module = Module()
    pytorch_lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                              enable_progress_bar=False, enable_model_summary=False).fit(module, batches)
    yield bits(module.inner[0].bias)


if __name__ == "__main__":
    main()
