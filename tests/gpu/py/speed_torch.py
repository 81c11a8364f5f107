"""PyTorch on the models that `train` is measured with: ResNet-50 and a Transformer of GPT-2's small size.

usage: speed_torch.py [gemm] [resnet50] [gpt2-small] [--quick]

Prints one line of key=value for each variant: the median step of STEPS after WARM_UP, forward, backward and update on
data that lies on the device. Variants are what a user may choose in eager mode: memory layout, autocast or parameters
in bf16, and cuDNN's benchmark. `gemm` measures the card's bf16 matrix product as its peak.
"""

import statistics
import sys

import torch
from torch import nn
from torch.nn import functional

WARM_UP = 8
STEPS = 20
BATCH = 128
SIDE = 224
CLASSES = 1000
TOKENS = (8, 1024)
LAYERS, WIDTH, HEADS, VOCABULARY = 12, 768, 12, 50304
# Multiplications of one picture forward (torchvision's count); training is three times that.
RESNET50_PRODUCTS = 4.089e9


def median_step_ms(step, warm_up=WARM_UP, steps=STEPS):
    for _ in range(warm_up):
        step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:]))


def report(name, flops, ms, **keys):
    text = " ".join(f"{key}={value}" for key, value in keys.items())
    print(f"torch model={name} {text} gflop={flops * 1e-9:.1f} step_ms={ms:.3f} tflops={flops / ms * 1e-9:.1f}", flush=True)


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return self.relu(y)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, 2 if stage and block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def fixed(*tensors):
    """Lets CUDA graphs read the batch where it lies, instead of copying it every step."""
    for tensor in tensors:
        torch._dynamo.mark_static_address(tensor)


def make_step(model, loss_of, optimizer, way):
    """A training step: "eager", "compile" or "graphs" (compiled, and replayed as CUDA graphs). The loss is compiled
    with the model, because that is the fastest way."""
    if way != "eager":
        loss_of = torch.compile(loss_of, mode="reduce-overhead" if way == "graphs" else None, dynamic=False)

    def step():
        optimizer.zero_grad(set_to_none=True)
        if way == "graphs":
            torch.compiler.cudagraph_mark_step_begin()
        loss_of().backward()
        optimizer.step()

    step.model = model
    return step


def resnet50_step(layout="channels_last", precision="autocast", benchmark=True, way="eager"):
    torch.backends.cudnn.benchmark = benchmark
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model = resnet50().cuda().to(memory_format=memory_format)
    x = torch.randn(BATCH, 3, SIDE, SIDE, device="cuda").to(memory_format=memory_format)
    labels = torch.randint(CLASSES, (BATCH,), device="cuda")
    if precision == "bf16":
        model, x = model.bfloat16(), x.bfloat16()
    if way == "graphs":
        fixed(x, labels)

    def loss_of():
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "autocast"):
            return functional.cross_entropy(model(x), labels)

    return make_step(model, loss_of, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True), way)


def resnet50_flops():
    return 3 * 2 * RESNET50_PRODUCTS * BATCH


def measure_resnet50(layout, precision, benchmark):
    ms = median_step_ms(resnet50_step(layout, precision, benchmark))
    report(
        "resnet50", resnet50_flops(), ms, layout=layout, precision=precision, benchmark=int(benchmark), batch=BATCH
    )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        q, k, v = (t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS[1], WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


def gpt2_step(precision="autocast", way="eager"):
    model = Transformer().cuda()
    tokens = torch.randint(VOCABULARY, TOKENS, device="cuda")
    labels = torch.randint(VOCABULARY, TOKENS, device="cuda")
    if precision == "bf16":
        model = model.bfloat16()
    if way == "graphs":
        fixed(tokens, labels)

    def loss_of():
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "autocast"):
            return functional.cross_entropy(model(tokens).view(-1, VOCABULARY), labels.view(-1))

    return make_step(model, loss_of, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), way)


def gpt2_flops():
    count = TOKENS[0] * TOKENS[1]
    weights = LAYERS * 12 * WIDTH * WIDTH + VOCABULARY * WIDTH
    return 6 * weights * count + 6 * LAYERS * WIDTH * TOKENS[1] * count  # attention: half of it is masked


def measure_gpt2(precision):
    ms = median_step_ms(gpt2_step(precision))
    report("gpt2-small", gpt2_flops(), ms, precision=precision, batch=TOKENS[0], length=TOKENS[1])


def measure_gemm():
    side = 8192
    a = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)
    ms = median_step_ms(lambda: a @ b)
    report("gemm", 2.0 * side**3, ms, side=side, precision="bf16")


def main(arguments):
    names = [name for name in arguments if not name.startswith("--")] or ["gemm", "resnet50", "gpt2-small"]
    quick = "--quick" in arguments
    if "gemm" in names:
        measure_gemm()
    if "resnet50" in names:
        variants = [("channels_last", "autocast", False), ("channels_last", "autocast", True)]
        if not quick:
            variants += [("nchw", "autocast", False), ("channels_last", "bf16", False), ("channels_last", "bf16", True)]
        for variant in variants:
            measure_resnet50(*variant)
            torch.cuda.empty_cache()
    if "gpt2-small" in names:
        for precision in ("autocast",) if quick else ("autocast", "bf16"):
            measure_gpt2(precision)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1:])
