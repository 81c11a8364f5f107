"""A training with batches of changing size, for tests/gpu/job/adopt_ways.sh, which runs it with PyTorch's cache and in
the ways in which PyTorch leaves caching to others. Runs under `gpucap run`; asks `gpucap ps` what it holds.

usage: adopt_ways.py train GPUCAP      GPUCAP: the command
       adopt_ways.py neighbour         takes blocks until it is refused, and prints `bytes=`

Prints step_ms (median), total_ms of all timed steps, held_peak, held_idle (some seconds after the last step),
lent (what a neighbour of the same job gets in the middle), held_middle and live_middle (what this process holds, and has
in use, then), all in bytes, and at last `graph=` with what became of a CUDA graph: works, differs, or the error.
"""
import ctypes
import os
import random
import statistics
import subprocess
import sys
import time

WARM_UP, STEPS = 6, 60
BATCHES = range(1024, 24 * 1024, 512)
REST_S = 3  # longer than gpucap's pool keeps what idles
BLOCK = 64 << 20


def neighbour():
    driver = ctypes.CDLL("libcuda.so.1")
    context, address, taken = ctypes.c_void_p(), ctypes.c_uint64(), 0
    for code in (driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
                 driver.cuCtxSetCurrent(context)):
        if code:
            sys.exit(f"the driver answered {code}")
    while driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(BLOCK)) == 0:
        taken += BLOCK
    print(f"bytes={taken}")
    return 0


def look(command):
    """What `gpucap ps` says of this process, in the form that needs no other library."""
    told = subprocess.run([command, "ps", "--prometheus"], stdout=subprocess.PIPE, check=True, text=True).stdout
    row = {}
    for line in told.splitlines():
        if line.startswith("gpucap_process_") and f'pid="{os.getpid()}"' in line:
            name, _, rest = line.partition("{")
            row[name.removeprefix("gpucap_process_").removesuffix("_bytes")] = int(float(rest.rpartition(" ")[2]))
    if "used" not in row:
        sys.exit("gpucap ps does not show this process")
    return row


def ask_neighbour():
    out = subprocess.run([sys.executable, __file__, "neighbour"], stdout=subprocess.PIPE, text=True).stdout
    return int(out.partition("bytes=")[2] or 0)


class Training:
    def __init__(self, torch):
        nn = torch.nn
        self.torch = torch
        torch.manual_seed(1)
        layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.Tanh())]
        self.model = nn.Sequential(*layers, nn.Linear(1024, 10)).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step(self, batch):
        inputs = self.torch.randn(batch, 1024, device="cuda")
        targets = self.torch.randint(10, (batch,), device="cuda")
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.torch.nn.functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.torch.cuda.synchronize()


def capture(training):
    """Captures a forward pass and replays it with other inputs."""
    torch, model = training.torch, training.model
    inputs = torch.randn(256, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.graph(graph):
            outputs = model(inputs)
        inputs.copy_(torch.randn(256, 1024, device="cuda"))
        graph.replay()
        return "works" if torch.allclose(outputs, model(inputs), atol=1e-4) else "differs"


def train(command):
    import torch

    training, sizes, times = Training(torch), random.Random(7), []
    for _ in range(WARM_UP):
        training.step(sizes.choice(BATCHES))
    for number in range(STEPS):
        batch = sizes.choice(BATCHES)
        begin = time.perf_counter()
        training.step(batch)
        times.append((time.perf_counter() - begin) * 1e3)
        if number == STEPS // 2:
            middle, lent = look(command), ask_neighbour()
            live = torch.cuda.memory_allocated() or middle["used"] - middle["idle"]
            training.step(batch)  # takes back what was lent; not timed
    peak = look(command)["peak"]
    time.sleep(REST_S)
    print(f"step_ms={statistics.median(times):.2f}\ntotal_ms={sum(times):.0f}\nheld_peak={peak}")
    print(f"held_middle={middle['used']}\nlive_middle={live}\nlent={lent}\nheld_idle={look(command)['used']}", flush=True)
    try:
        print("graph=" + capture(training), flush=True)
    except Exception as error:  # whatever PyTorch raises is the answer
        print("graph=" + str(error).strip().splitlines()[0][:120], flush=True)
    return 0


def main(arguments):
    if arguments == ["neighbour"]:
        return neighbour()
    if len(arguments) == 2 and arguments[0] == "train":
        return train(arguments[1])
    sys.stderr.write(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
