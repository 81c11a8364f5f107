"""How long steps of ordinary programs take. Knows nothing of gpucap: the caller decides what is preloaded.

usage: overhead.py torch|jax|cupy|resnet50_var|gpt_varlen|two_models|segment_varres|speech_varlen

torch, jax and cupy do what their users do, with the allocator that the environment selects: many small operations whose
temporaries come and go, so that the allocator is asked often. The others are the workloads of torch_workloads.py.

For each line on stdin, a number of steps, it does them and prints a line of their times in ms. So several of these can
take turns on one card and one processor (overhead_turns.py), and whatever disturbs them disturbs them alike. At the end
of the input it prints a line that begins with `peak` and says how many bytes PyTorch's own cache held or,
where that is off, gpucap's pool; 0 if that is not known.
"""
import ctypes
import os
import random
import sys
import time

WORKLOAD_STEPS = 120  # from the middle of them on gpt_varlen checkpoints its activations


def torch_step():
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, 2), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 128, 3, 2), torch.nn.BatchNorm2d(128), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(2048, 1024), torch.nn.GELU(),
        torch.nn.Linear(1024, 1000)).cuda()
    update = torch.optim.AdamW(net.parameters(), 1e-3)
    sizes = [64, 96, 128, 80]
    turn = 0

    def step():
        nonlocal turn
        turn += 1
        n = sizes[turn % len(sizes)]
        loss = torch.nn.functional.cross_entropy(net(torch.randn(n, 3, 128, 128, device="cuda")),
                                                 torch.zeros(n, dtype=torch.long, device="cuda"))
        update.zero_grad()
        loss.backward()
        update.step()
        torch.cuda.synchronize()

    return step


def jax_step():
    import jax
    import jax.numpy as jnp

    def loss(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x * x).mean()

    update = jax.jit(lambda weights, x: [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights, x))])
    weights = [jax.random.normal(jax.random.PRNGKey(i), (1024, 1024)) * 0.05 for i in range(8)]
    inputs = [jnp.ones((n, 1024)) for n in (256, 512, 384)]
    state = {"weights": weights, "turn": 0}

    def step():
        state["turn"] += 1
        x = inputs[state["turn"] % len(inputs)] * 1.0
        state["weights"] = update(state["weights"], x)
        jax.block_until_ready(state["weights"])

    return step


def cupy_step():
    import cupy

    weights = cupy.random.standard_normal((1024, 1024), dtype=cupy.float32) * 0.05
    state = {"turn": 0}
    sizes = [256, 512, 384, 640]

    def step():
        state["turn"] += 1
        x = cupy.ones((sizes[state["turn"] % len(sizes)], 1024), dtype=cupy.float32)
        for _ in range(16):
            x = cupy.tanh(x @ weights) + 0.5 * x
        float(x.sum())

    return step


def workload_step(name):
    import torch
    import torch_workloads

    random.seed(0)
    torch.manual_seed(0)
    steps = getattr(torch_workloads, name)(WORKLOAD_STEPS)

    def step():
        next(steps, None)
        torch.cuda.synchronize()

    return step


def peak_of_pool():
    """Member peak_physical of struct gpucap_stats (gpucap.h); 0 without gpucap."""
    figures = (ctypes.c_uint64 * 7)()
    stats = getattr(ctypes.CDLL(None), "gpucap_stats", None)
    return figures[6] if stats and stats(0, figures, ctypes.c_size_t(ctypes.sizeof(figures))) == 0 else 0


def main():
    name = sys.argv[1]
    steps = {"torch": torch_step, "jax": jax_step, "cupy": cupy_step}
    step = steps[name]() if name in steps else workload_step(name)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - begin))
        print(" ".join(f"{ms:.4f}" for ms in times), flush=True)
    torch = sys.modules.get("torch")
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:
        peak = peak_of_pool()
    else:
        peak = torch.cuda.memory_stats().get("reserved_bytes.all.peak", 0) if torch else 0
    print("peak", peak, flush=True)


if __name__ == "__main__":
    main()
