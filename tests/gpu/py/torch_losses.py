"""Trains a small CNN and a small Transformer for ten steps each, deterministically. Knows nothing of gpucap.

Prints key=value lines; `losses` is a hash of the bits of every loss and, at the end, of every parameter. Two runs on
one machine print the same, with any manager of the memory. Batches change their size from step to step, so that blocks of
many sizes come and go. Only operations that PyTorch lists as deterministic: it ends with an error at any other.
"""
import hashlib
import os
import struct
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (reads the variable when it starts)
from torch import nn  # noqa: E402

STEPS = 10
CLASSES = 10


class Cnn(nn.Module):
    """Strided convolutions instead of pooling, whose gradients need not be deterministic."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.BatchNorm2d(128), nn.ReLU())
        self.head = nn.Linear(128 * 8 * 8, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


class Layer(nn.Module):
    """Attention written out: the fused kernels' gradients may add up in any order."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    def __init__(self, width=256, heads=4, layers=3):
        super().__init__()
        self.into = nn.Linear(32, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.layers(self.into(x)).mean(1))


def picture_batch(step, generator):
    return torch.randn(16 + 8 * (step % 4), 3, 32, 32, generator=generator)


def text_batch(step, generator):
    return torch.randn(4 + step % 3, 64 + 32 * (step % 5), 32, generator=generator)


def train(model, batch_of, digest):
    """Returns the first and the last loss."""
    generator = torch.Generator().manual_seed(7)
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        inputs = batch_of(step, generator)
        targets = torch.randint(CLASSES, (inputs.shape[0],), generator=generator)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        digest.update(struct.pack("<f", losses[-1]))
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return losses[0], losses[-1]


def main():
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    digest = hashlib.sha256()
    sound = True
    for name, model, batch_of in (("cnn", Cnn, picture_batch), ("transformer", Transformer, text_batch)):
        torch.manual_seed(1234)
        first, last = train(model(), batch_of, digest)
        sound = sound and first == first and last == last
        print(f"{name}_first={first:.9g}")
        print(f"{name}_last={last:.9g}")
    print(f"losses={digest.hexdigest()}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
