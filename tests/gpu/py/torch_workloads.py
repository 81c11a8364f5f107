"""The five workloads behind the recorded traces, deterministically. Knows nothing of gpucap.

usage: torch_workloads.py [STEPS]

ResNet-50 with batches of changing size, GPT-2 with texts of changing length and activation checkpointing from the middle
on, two models in turn with an evaluation that needs more, a segmentation of pictures whose size never repeats, and
speech of changing length. Prints a line for each, `losses_NAME` being a hash of the
bits of every loss and, at the end, of every parameter. A workload whose library is not installed is left out.
Operations that PyTorch does not have in a deterministic form are warned about on stderr and used all the same.
"""
import hashlib
import importlib.util
import os
import random
import struct
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (reads the variable when it starts)
from torch import nn  # noqa: E402

CLASSES = 1000


def random_pictures(count, side=224):
    return torch.randn(count, 3, side, side, device="cuda")


def classify(model, count):
    labels = torch.randint(0, CLASSES, (count,), device="cuda")
    return nn.functional.cross_entropy(model(random_pictures(count)), labels)


def descend(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def resnet50_var(steps):
    import torchvision

    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for step in range(steps):
        yield descend(classify(model, random.choice([32, 48, 64, 96, 100, 128])), optimizer), model
        if step % 5 == 4:
            model.eval()
            with torch.no_grad():
                model(random_pictures(200, 256))
            model.train()


def gpt_varlen(steps):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=768, n_head=12)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for step in range(steps):
        if step == steps // 2:
            model.gradient_checkpointing_enable()
        text = torch.randint(0, 50000, (8, random.randrange(128, 1025, 8)), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(text, labels=text, use_cache=False).loss
        yield descend(loss, optimizer), model


def two_models(steps):
    import torchvision

    pictures = torchvision.models.resnet18().cuda()
    series = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6).cuda()
    first = torch.optim.Adam(pictures.parameters(), 1e-3)
    second = torch.optim.AdamW(series.parameters(), 1e-4)
    for step in range(steps):
        yield descend(classify(pictures, random.choice([64, 96, 128, 160])), first), pictures
        inputs = torch.randn(32, random.randrange(64, 513), 512, device="cuda")
        yield descend(series(inputs).pow(2).mean(), second), series
        if step % 5 == 4:
            with torch.no_grad():
                for _ in range(4):
                    large = random_pictures(128, 320)
                    pictures(nn.functional.interpolate(large, size=(224, 224), mode="bilinear"))


def segment_varres(steps):
    import torchvision

    model = torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=21).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    for _ in range(steps):
        height, width = random.randrange(256, 900, 16), random.randrange(256, 900, 16)
        count = max(2, 3_000_000 // (height * width))
        pictures = torch.randn(count, 3, height, width, device="cuda")
        labels = torch.randint(0, 21, (count, height, width), device="cuda")
        # A row for each point: PyTorch adds up the losses of whole pictures in any order.
        scores = model(pictures)["out"].permute(0, 2, 3, 1).flatten(0, 2)
        yield descend(nn.functional.cross_entropy(scores, labels.flatten()), optimizer), model


def speech_varlen(steps):
    front = nn.Sequential(nn.Conv1d(80, 512, 3, 2, 1), nn.GELU(), nn.Conv1d(512, 512, 3, 2, 1), nn.GELU())
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, activation="gelu")
    model = nn.ModuleList([front, nn.TransformerEncoder(layer, 12), nn.Linear(512, 4096)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(steps):
        length = random.randrange(400, 3001)
        sound = torch.randn(max(1, 24000 // length * 2), 80, length, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            said = model[2](model[1](model[0](sound).transpose(1, 2)))
            labels = torch.randint(0, 4096, (said.shape[0] * said.shape[1],), device="cuda")
            loss = nn.functional.cross_entropy(said.float().flatten(0, 1), labels)
        yield descend(loss, optimizer), model


WORKLOADS = ((resnet50_var, "torchvision"), (gpt_varlen, "transformers"), (two_models, "torchvision"),
             (segment_varres, "torchvision"), (speech_varlen, "torch"))


def run(workload, steps):
    digest, models, losses = hashlib.sha256(), {}, []
    random.seed(0)
    torch.manual_seed(0)
    for loss, model in workload(steps):
        losses.append(loss)
        models[id(model)] = model
        digest.update(struct.pack("<f", loss))
    for model in models.values():
        for parameter in model.parameters():
            digest.update(parameter.detach().cpu().numpy().tobytes())
    name = workload.__name__
    print(f"losses_{name}={digest.hexdigest()}")
    print(f"# {name}: {len(losses)} losses, {losses[0]:.9g} to {losses[-1]:.9g}")
    return all(loss == loss for loss in losses)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    for enable in (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.enable_mem_efficient_sdp,
                   torch.backends.cuda.enable_cudnn_sdp):
        enable(False)  # attention by plain products: the fused kernels' gradients add up in any order
    sound = True
    for workload, library in WORKLOADS:
        if importlib.util.find_spec(library):
            sound = run(workload, steps) and sound
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
