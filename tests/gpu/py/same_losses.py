"""Trains six models with `train` and with PyTorch, from the same weights on the same batches, and compares the losses.

usage: same_losses.py --train=PATH --work=FOLDER [--library-path=PATHS] [--steps=20] [--only=MODEL,...]
                      [--precisions=fp32,bf16] [--small] [--files-only]

`train` writes its initial weights (--save-weights) and each step's batch and loss (--dump) as safetensors files. The
models below have the names and shapes of those files. They take the same steps with the optimizers of torch.optim, in
float without TF32, and in bf16 by autocast. Prints one line of key=value for each model and precision; `worst` is the
largest relative difference of a step's loss, `noise` that between two runs of PyTorch whose weights differ in the last
bit. Exit status 1 if a `worst` is above its limit.

--small makes the models so small that simgpu can train them. --files-only reads the files that `train` wrote and
compares names and shapes with the list below, and needs no PyTorch.
"""
import argparse
import json
import math
import os
import struct
import subprocess
import sys

LIMITS = {"fp32": 1e-4, "bf16": 1e-2}
SGD, ADAMW = "sgd", "adamw"  # what train chooses for these models

# A difference in the last bit grows from step to step in any two programs, most in deep networks with batch
# normalization. The rates are such that on simgpu, with narrower models, it stays around 1e-5 in 20 steps, while the
# steps change the losses by 1e-3 and more: a wrong gradient or update would show. `noise` is that growth here.
# name: (train's options, options with --small, heads of both, optimizer, rate, weights that start with a value of
# their own and that value)
MODELS = {
    "mlp": (["--hidden=256,128", "--batch=64"], ["--hidden=16,8", "--image=4", "--batch=4"], None, SGD, 0.005, None),
    "cnn": (["--image=28", "--batch=64"], ["--width=4", "--image=8", "--batch=4"], None, SGD, 0.001, None),
    "resnet18": (["--image=32", "--batch=64"], ["--width=2", "--image=16", "--batch=4"], None, SGD, 1e-4, None),
    # The branches of its blocks start smaller than what they are added to, as usual for this depth (Goyal et al. 2017
    # start them at zero). Otherwise gradients grow so much towards the input that the second step is chaotic.
    "resnet50": (["--image=224", "--batch=64"], ["--width=2", "--image=72", "--batch=2"], None, SGD, 2e-5,
                 (".bn3.weight", 0.2)),
    "gpt": (["--batch=16"], ["--layers=2", "--width=16", "--heads=2", "--length=8", "--vocabulary=32", "--batch=2"],
            (6, 2), ADAMW, 0.001, None),
    "unet": (["--batch=16"], ["--layers=2", "--width=4", "--image=8", "--batch=2"], None, ADAMW, 2e-5, None),
}


# ---- files ----

def read_file(path):
    """Returns {name: (type, shape, bytes)} of a safetensors file."""
    with open(path, "rb") as file:
        contents = file.read()
    (length,) = struct.unpack_from("<Q", contents)
    header = json.loads(contents[8:8 + length])
    data = memoryview(contents)[8 + length:]
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return tensors


def loss_of(tensors):
    (loss,) = struct.unpack("<f", tensors["loss"][2])
    return loss


def set_values(path, suffix, value):
    """Fills the tensors of a file whose names end so."""
    with open(path, "r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        for name, entry in header.items():
            if name.endswith(suffix):
                begin, end = entry["data_offsets"]
                file.seek(8 + length + begin)
                file.write(struct.pack("<f", value) * ((end - begin) // 4))


def run_train(arguments, model, precision, folder):
    options, small, _, _, rate, start_values = MODELS[model]
    command = [arguments.train, f"--model={model}", f"--precision={precision}", "--quiet", "--alloc=cache",
               "--val-batches=1", f"--rate={rate}"]
    command += small if arguments.small else options
    environment = dict(os.environ)
    if arguments.library_path is not None:
        environment["LD_LIBRARY_PATH"] = arguments.library_path
    os.makedirs(folder, exist_ok=True)
    start = f"{folder}/weights.safetensors"
    subprocess.run(command + ["--steps=0", f"--save-weights={start}"], env=environment, check=True,
                   stdout=subprocess.DEVNULL)
    if start_values and not arguments.small:
        set_values(start, *start_values)
    subprocess.run(command + [f"--steps={arguments.steps}", f"--load-weights={start}", f"--dump={folder}"],
                   env=environment, check=True, stdout=subprocess.DEVNULL)
    weights = read_file(start)
    steps = [read_file(f"{folder}/step-{step:06d}.safetensors") for step in range(1, arguments.steps + 1)]
    return weights, steps


# ---- the names and shapes that the files must have, written down a second time ----

def linear(name, outputs, inputs):
    return {f"{name}.weight": [outputs, inputs], f"{name}.bias": [outputs]}


def norm(name, channels):
    return {f"{name}.weight": [channels], f"{name}.bias": [channels]}


def conv_norm(prefix, conv, bn, outputs, inputs, size):
    return {f"{prefix}{conv}.weight": [outputs, inputs, size, size], **norm(prefix + bn, outputs),
            f"{prefix}{bn}.running_mean": [outputs], f"{prefix}{bn}.running_var": [outputs]}


def resnet_shapes(deep, width, size, classes):
    shapes = conv_norm("", "conv1", "bn1", width, 3, size)
    inputs = width
    for stage, blocks in enumerate((3, 4, 6, 3) if deep else (2, 2, 2, 2)):
        inner = width << stage
        outputs = 4 * inner if deep else inner
        for block in range(blocks):
            prefix = f"layer{stage + 1}.{block}."
            if deep:
                parts = ((inner, inputs, 1), (inner, inner, 3), (outputs, inner, 1))
            else:
                parts = ((inner, inputs, 3), (inner, inner, 3))
            for i, part in enumerate(parts):
                shapes |= conv_norm(prefix, f"conv{i + 1}", f"bn{i + 1}", *part)
            if inputs != outputs or (block == 0 and stage > 0):
                shapes |= conv_norm(prefix, "downsample.0", "downsample.1", outputs, inputs, 1)
            inputs = outputs
    return shapes | linear("fc", classes, inputs)


def unet_shapes(levels, width):
    shapes, inputs = {}, 3
    for level in range(levels):
        for i in (1, 2):
            shapes |= conv_norm(f"down.{level}.", f"conv{i}", f"bn{i}", width << level, inputs, 3)
            inputs = width << level
    for i in (1, 2):
        shapes |= conv_norm("middle.", f"conv{i}", f"bn{i}", width << levels, inputs, 3)
        inputs = width << levels
    for up in range(levels):
        outputs = width << (levels - 1 - up)
        shapes |= conv_norm(f"up.{up}.", "conv", "bn", outputs, inputs, 3)
        shapes |= conv_norm(f"up.{up}.", "conv1", "bn1", outputs, 2 * outputs, 3)
        shapes |= conv_norm(f"up.{up}.", "conv2", "bn2", outputs, outputs, 3)
        inputs = outputs
    return shapes | {"out.weight": [3, inputs, 1, 1], "out.bias": [3]}


def gpt_shapes(layers, width, length, vocabulary):
    shapes = {"transformer.wte.weight": [vocabulary, width], "transformer.wpe.weight": [length, width]}
    for layer in range(layers):
        prefix = f"transformer.h.{layer}."
        shapes |= norm(prefix + "ln_1", width) | norm(prefix + "ln_2", width)
        shapes |= linear(prefix + "attn.c_attn", 3 * width, width) | linear(prefix + "attn.c_proj", width, width)
        shapes |= linear(prefix + "mlp.c_fc", 4 * width, width) | linear(prefix + "mlp.c_proj", width, 4 * width)
    return shapes | norm("transformer.ln_f", width)


def count(weights, prefix):
    """How many modules PREFIX.0, PREFIX.1, ... there are."""
    return len({name[len(prefix) + 1:].split(".")[0] for name in weights if name.startswith(prefix + ".")})


def shape(weights, name):
    return weights[name][1]


def expected_shapes(model, weights, side):
    if model == "mlp":
        sizes = [shape(weights, f"layers.{i}.weight") for i in range(count(weights, "layers"))]
        pairs = {}
        for i, (outputs, inputs) in enumerate(sizes):
            pairs |= linear(f"layers.{i}", outputs, sizes[i - 1][0] if i else inputs)
        return pairs
    if model == "cnn":
        width, classes = shape(weights, "conv1.bias")[0], shape(weights, "fc2.bias")[0]
        return {"conv1.weight": [width, 3, 3, 3], "conv1.bias": [width], "conv2.weight": [2 * width, width, 3, 3],
                "conv2.bias": [2 * width], **linear("fc1", 4 * width, 2 * width * (side // 4) ** 2),
                **linear("fc2", classes, 4 * width)}
    if model in ("resnet18", "resnet50"):
        return resnet_shapes(model == "resnet50", shape(weights, "conv1.weight")[0], 3 if side <= 64 else 7,
                             shape(weights, "fc.bias")[0])
    if model == "unet":
        return unet_shapes(count(weights, "down"), shape(weights, "out.weight")[1])
    vocabulary, width = shape(weights, "transformer.wte.weight")
    return gpt_shapes(count(weights, "transformer.h"), width, shape(weights, "transformer.wpe.weight")[0], vocabulary)


def check_files(model, weights, steps):
    batch = steps[0]["tokens" if model == "gpt" else "x"][1]
    side = batch[1] if len(batch) == 4 else 0
    expected = expected_shapes(model, weights, side)
    found = {name: entry[1] for name, entry in weights.items()}
    if found != expected:
        different = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise SystemExit(f"{model}: the weights are not as expected: " +
                         ", ".join(f"{name} {found.get(name)} {expected.get(name)}" for name in different[:5]))
    for kind, size, data in list(weights.values()) + [entry for step in steps for entry in step.values()]:
        if kind not in ("F32", "I32") or len(data) != 4 * math.prod(size):
            raise SystemExit(f"{model}: a tensor of {kind} {size} has {len(data)} bytes")
    if not all(math.isfinite(loss_of(step)) for step in steps):
        raise SystemExit(f"{model}: a loss is not finite")


# ---- the models in PyTorch ----

def torch_models(torch):
    """The modules, made where torch is known to be there."""
    nn, functional = torch.nn, torch.nn.functional

    class Mlp(nn.Module):
        def __init__(self, weights):
            super().__init__()
            sizes = [shape(weights, f"layers.{i}.weight") for i in range(count(weights, "layers"))]
            self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for outputs, inputs in sizes)

        def forward(self, x):
            x = x.flatten(1)
            for layer in self.layers[:-1]:
                x = functional.relu(layer(x))
            return self.layers[-1](x)

    class Cnn(nn.Module):
        def __init__(self, weights):
            super().__init__()
            width = shape(weights, "conv1.bias")[0]
            self.conv1 = nn.Conv2d(3, width, 3, padding=1)
            self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
            self.fc1 = nn.Linear(*reversed(shape(weights, "fc1.weight")))
            self.fc2 = nn.Linear(*reversed(shape(weights, "fc2.weight")))

        def forward(self, x):
            x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
            x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
            return self.fc2(functional.relu(self.fc1(x.flatten(1))))

    class Residual(nn.Module):
        """A basic block of two convolutions, or a bottleneck of three with the stride in the second."""

        def __init__(self, inputs, inner, outputs, stride, deep):
            super().__init__()
            if deep:
                self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
                self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
                self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
                self.bn3 = nn.BatchNorm2d(outputs)
            else:
                self.conv1 = nn.Conv2d(inputs, inner, 3, stride, 1, bias=False)
                self.conv2 = nn.Conv2d(inner, inner, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(inner), nn.BatchNorm2d(inner)
            self.deep = deep
            self.downsample = None
            if stride != 1 or inputs != outputs:
                self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                                nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = functional.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            if self.deep:
                y = self.bn3(self.conv3(functional.relu(y)))
            return functional.relu(y + (x if self.downsample is None else self.downsample(x)))

    class ResNet(nn.Module):
        def __init__(self, weights, deep):
            super().__init__()
            width, _, size, _ = shape(weights, "conv1.weight")
            self.conv1 = nn.Conv2d(3, width, size, 2 if size == 7 else 1, size // 2, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.small = size == 3  # small pictures keep their size
            inputs = width
            for stage, blocks in enumerate((3, 4, 6, 3) if deep else (2, 2, 2, 2)):
                layers = []
                for block in range(blocks):
                    outputs = (4 if deep else 1) * (width << stage)
                    layers.append(Residual(inputs, width << stage, outputs, 2 if stage and not block else 1, deep))
                    inputs = outputs
                setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
            self.fc = nn.Linear(inputs, shape(weights, "fc.bias")[0])

        def forward(self, x):
            x = functional.relu(self.bn1(self.conv1(x)))
            if not self.small:
                x = functional.max_pool2d(x, 3, 2, 1)
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(x.mean((2, 3)))

    class Attention(nn.Module):
        """Written out: in float, the fused kernels may compute products in TF32."""

        def __init__(self, width, heads):
            super().__init__()
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.heads = heads

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(width, 2))
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = torch.softmax(scores.masked_fill(later, -math.inf), -1) @ v
            return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))

    class Mlp2(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.mlp = Attention(width, heads), Mlp2(width)

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class Gpt(nn.Module):
        def __init__(self, weights, heads):
            super().__init__()
            vocabulary, width = shape(weights, "transformer.wte.weight")
            blocks = [Block(width, heads) for _ in range(count(weights, "transformer.h"))]
            self.transformer = nn.ModuleDict({
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(*shape(weights, "transformer.wpe.weight")),
                "h": nn.ModuleList(blocks),
                "ln_f": nn.LayerNorm(width)})

        def forward(self, tokens):
            parts = self.transformer
            x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1], device=tokens.device))
            for block in parts["h"]:
                x = block(x)
            return functional.linear(parts["ln_f"](x), parts["wte"].weight).flatten(0, 1)

    class Two(nn.Module):
        """Two convolutions; `first`: another one before what comes from beside is put to it."""

        def __init__(self, inputs, outputs, first=0):
            super().__init__()
            if first:
                self.conv, self.bn = nn.Conv2d(first, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
            self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
            self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)

        def forward(self, x, beside=None):
            if beside is not None:
                x = functional.interpolate(x, scale_factor=2, mode="nearest")
                x = torch.cat((beside, functional.relu(self.bn(self.conv(x)))), 1)
            x = functional.relu(self.bn1(self.conv1(x)))
            return functional.relu(self.bn2(self.conv2(x)))

    class UNet(nn.Module):
        def __init__(self, weights):
            super().__init__()
            levels, width = count(weights, "down"), shape(weights, "out.weight")[1]
            self.down = nn.ModuleList(Two(width << (level - 1) if level else 3, width << level)
                                      for level in range(levels))
            self.middle = Two(width << (levels - 1), width << levels)
            self.up = nn.ModuleList(Two(2 * (width << level), width << level, first=width << (level + 1))
                                    for level in reversed(range(levels)))
            self.out = nn.Conv2d(width, 3, 1)

        def forward(self, x):
            beside = []
            for level in self.down:
                beside.append(level(x))
                x = functional.max_pool2d(beside[-1], 2)
            x = self.middle(x)
            for level in self.up:
                x = level(x, beside.pop())
            return self.out(x)

    return {"mlp": Mlp, "cnn": Cnn, "resnet18": lambda weights: ResNet(weights, False),
            "resnet50": lambda weights: ResNet(weights, True), "gpt": Gpt, "unet": UNet}


def to_tensor(torch, entry):
    kind, size, data = entry
    types = {"F32": torch.float32, "I32": torch.int32}
    return torch.frombuffer(bytearray(data), dtype=types[kind]).reshape(size).cuda()


def load(torch, module, weights):
    values = {name: to_tensor(torch, entry) for name, entry in weights.items()}
    missing, unexpected = module.load_state_dict(values, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise SystemExit(f"PyTorch's names differ: missing {missing}, unexpected {unexpected}")


def batch_of(torch, model, step):
    """Input and target, as PyTorch wants them: pictures are [n][c][h][w]."""
    if model == "gpt":
        return to_tensor(torch, step["tokens"]).long(), to_tensor(torch, step["labels"]).long().flatten()
    x = to_tensor(torch, step["x"]).permute(0, 3, 1, 2).contiguous()
    if model == "unet":
        return x, to_tensor(torch, step["target"]).permute(0, 3, 1, 2).contiguous()
    return x, to_tensor(torch, step["labels"]).long()


def train_torch(torch, arguments, model, precision, weights, steps, disturb=False):
    """Returns the loss of each step. `disturb` changes the last bit of about half of the weights."""
    _, _, heads, optimizer_name, rate, _ = MODELS[model]
    functional = torch.nn.functional
    extra = [heads[1 if arguments.small else 0]] if heads else []
    module = torch_models(torch)[model](weights, *extra).cuda().train()
    load(torch, module, weights)
    if disturb:
        generator = torch.Generator("cuda").manual_seed(1)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter *= 1 + 1e-7 * (torch.rand(parameter.shape, generator=generator, device="cuda") * 2 - 1)
    if optimizer_name == SGD:
        optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(module.parameters(), lr=rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses = []
    for step in steps:
        x, target = batch_of(torch, model, step)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            output = module(x)
        output = output.float()
        loss = functional.mse_loss(output, target) if model == "unet" else functional.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare(torch, arguments, model, precision):
    """Prints the line of one comparison. Returns True if the losses agree."""
    weights, steps = run_train(arguments, model, precision, os.path.join(arguments.work, f"{model}-{precision}"))
    check_files(model, weights, steps)
    ours = [loss_of(step) for step in steps]
    line = f"model={model} precision={precision} steps={len(ours)} tensors={len(weights)} first={ours[0]:.6g} " \
           f"last={ours[-1]:.6g}"
    if arguments.files_only:
        print(line, flush=True)
        return True
    theirs = train_torch(torch, arguments, model, precision, weights, steps)
    again = train_torch(torch, arguments, model, precision, weights, steps, disturb=True)
    differences = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
    noise = max(abs(a - b) / abs(b) for a, b in zip(again, theirs))
    worst = max(differences)
    good = all(difference <= LIMITS[precision] for difference in differences)  # not if one is not a number
    line += f" torch_last={theirs[-1]:.6g} first_difference={differences[0]:.2e} worst={worst:.2e}"
    print(f"{line} at={differences.index(worst) + 1} noise={noise:.2e} limit={LIMITS[precision]:.0e} same={int(good)}",
          flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--library-path")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--precisions", default=",".join(LIMITS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--files-only", action="store_true")
    arguments = parser.parse_args()
    torch = None
    if not arguments.files_only:
        import torch  # pylint: disable=import-outside-toplevel
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
    results = [compare(torch, arguments, model, precision) for model in arguments.only.split(",")
               for precision in arguments.precisions.split(",")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
