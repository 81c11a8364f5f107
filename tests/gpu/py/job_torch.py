"""Trainings for tests/gpu/job/job_check.sh: programs of one job on one card. Knows nothing of gpucap.

usage: job_torch.py idle FOLDER MIB [--alone]     trains, keeps MIB idle in whatever serves cudaMalloc
       job_torch.py cached FOLDER MIB             the same once, for a PyTorch that keeps MIB in its own cache
       job_torch.py peaks FIRST SECONDS PARTS     trains in turns of little and much memory

idle: takes and frees MIB, writes FOLDER/ready.N, trains on until FOLDER/done.N is there and some steps more; twice.
Prints a line `loss=` with the bits of each loss, and the step before and after each: the fastest, which other users of
the machine cannot make faster, and the median. --alone waits for no file.

peaks: windows of SECONDS by the clock; in those of number FIRST modulo 2 its steps need much memory, in the others
little. PARTS windows in all. Another training with the other FIRST then needs much while this one needs little. A large
step begins only well before its window ends. Prints `large=` and `small=` steps.
"""
import os
import statistics
import struct
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (reads the variable when it starts)
from torch import nn  # noqa: E402

STEPS = 200
SKIP = 20  # first steps of a phase that are not timed
LARGE, SMALL = 128 * 1024, 4096  # of a batch: 9 GiB and 0.4
LATE_PART = 0.5  # no large step begins after this part of a window


class Model(nn.Module):
    """Layers whose activations are all kept until the gradients are computed."""

    def __init__(self, width=1024, layers=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        return self.head(x)


class Training:
    def __init__(self):
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(1234)
        self.model = Model().cuda().train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.generator = torch.Generator(device="cuda").manual_seed(7)

    def step(self, batch):
        inputs = torch.randn(batch, 1024, device="cuda", generator=self.generator)
        targets = torch.randint(10, (batch,), device="cuda", generator=self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def bits(loss):
    return struct.pack("<f", loss).hex()


def timed_steps(training, batch, go_on):
    """Steps while go_on(number); prints their losses and returns their times in ms."""
    times, number = [], 0
    while go_on(number):
        begin = time.perf_counter()
        print(f"loss={bits(training.step(batch))}")
        times.append((time.perf_counter() - begin) * 1e3)
        number += 1
    return times


def idle(folder, mib, alone):
    training, batch = Training(), 8192
    phases = [timed_steps(training, batch, lambda n: n < STEPS)]
    for turn in (1, 2):
        torch.empty(mib << 20, dtype=torch.uint8, device="cuda")  # freed at once
        torch.cuda.synchronize()
        done = os.path.join(folder, f"done.{turn}")
        with open(os.path.join(folder, f"ready.{turn}"), "w", encoding="utf-8"):
            pass
        timed_steps(training, batch, lambda n: n < STEPS and alone or not alone and not os.path.exists(done))
        phases.append(timed_steps(training, batch, lambda n: n < STEPS))
    for name, times in zip(("before", "after_1", "after_2"), phases):
        print(f"median_{name}_ms={statistics.median(times[SKIP:]):.3f}")
        print(f"step_{name}_ms={min(times[SKIP:]):.3f}")
    return 0


def cached(folder, mib):
    training, batch = Training(), 1024
    timed_steps(training, batch, lambda n: n < SKIP)  # so that no step takes its memory from the large block
    torch.empty(mib << 20, dtype=torch.uint8, device="cuda")  # freed at once, to PyTorch's cache
    with open(os.path.join(folder, "ready.1"), "w", encoding="utf-8"):
        pass
    timed_steps(training, batch, lambda n: not os.path.exists(os.path.join(folder, "done.1")))
    timed_steps(training, batch, lambda n: n < SKIP)
    print(f"reserved={torch.cuda.memory_reserved()}")
    return 0


def peaks(first, seconds, parts):
    training, large, small = Training(), 0, 0
    training.step(256)
    begin = time.time()
    while time.time() - begin < seconds * parts or not large:
        now = time.time() / seconds
        if int(now) % 2 == first and now % 1 < LATE_PART:
            training.step(LARGE)
            torch.cuda.synchronize()
            large += 1
        else:
            training.step(SMALL)
            small += 1
    print(f"large={large}\nsmall={small}\nreserved={torch.cuda.max_memory_reserved()}")
    return 0


def main(arguments):
    if len(arguments) >= 3 and arguments[0] == "idle":
        return idle(arguments[1], int(arguments[2]), "--alone" in arguments)
    if len(arguments) == 3 and arguments[0] == "cached":
        return cached(arguments[1], int(arguments[2]))
    if len(arguments) == 4 and arguments[0] == "peaks":
        return peaks(int(arguments[1]), float(arguments[2]), int(arguments[3]))
    sys.stderr.write(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
