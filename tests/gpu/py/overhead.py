"""How long a step of an ordinary training loop takes. Knows nothing of gpucap: tools/gpu-check runs it with and without.

usage: overhead.py torch|jax|cupy [SECONDS]

Each framework does what its users do, with the allocator that its environment selects: many small operations whose
temporaries come and go, so that the allocator is asked often. Prints one line: the median, the mean and the least time of
a step in ms, the least median of any WINDOW steps in a row (others use the machine too), and the most memory that was in
use on the card at the end of a step.
"""
import statistics
import sys
import time

WINDOW = 100


def torch_step():
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, 2), torch.nn.BatchNorm2d(64), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 128, 3, 2), torch.nn.BatchNorm2d(128), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(2048, 1024), torch.nn.GELU(),
        torch.nn.Linear(1024, 1000)).cuda()
    update = torch.optim.AdamW(net.parameters(), 1e-3)
    sizes = [64, 96, 128, 80, 112]
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

    def used():
        free, total = torch.cuda.mem_get_info()
        return total - free

    return step, used


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

    def used():
        stats = jax.devices()[0].memory_stats() or {}
        return stats.get("peak_bytes_in_use", 0)

    return step, used


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

    def used():
        free, total = cupy.cuda.runtime.memGetInfo()
        return total - free

    return step, used


def main():
    name, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
    step, used = {"torch": torch_step, "jax": jax_step, "cupy": cupy_step}[name]()
    for _ in range(20):
        step()
    times, most, end = [], 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
        most = max(most, used()) if len(times) % 50 == 1 else most
    best = min(statistics.median(times[i:i + WINDOW]) for i in range(0, max(1, len(times) - WINDOW + 1), WINDOW))
    print(f"framework={name} steps={len(times)} median_ms={1e3 * statistics.median(times):.4f} "
          f"mean_ms={1e3 * statistics.fmean(times):.4f} min_ms={1e3 * min(times):.4f} "
          f"best_ms={1e3 * best:.4f} used={most}")


if __name__ == "__main__":
    main()
