"""train and PyTorch in turns on the same models: ResNet-50 and a Transformer of GPT-2's small size.

usage: speed_turns.py --train=PROGRAM [--library-path=PATH] [--rounds=N] [MODEL...]

PyTorch runs eager, compiled, and compiled with CUDA graphs (mode="reduce-overhead"), all with autocast to bf16, which
is train's precision policy: float weights and sums, bf16 activations and products. A round is a few steps of every way,
one after the other; the figure of a way is the median over the rounds of the median step. There are N rounds: what
takes long is that PyTorch compiles, once, before them. Prints a line of key=value for each way, and one for each model with what train gains over the best of
PyTorch. peak_percent is the share of the card's own bf16 product of 8192 x 8192 x 8192.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time

import torch

import speed_torch

WAYS = ("eager", "compile", "graphs")
TRAIN_STEPS = 60
WARM_UP_AGAIN = 3  # of a way that ran before
MODELS = {
    "resnet50": (speed_torch.resnet50_step, speed_torch.resnet50_flops, speed_torch.BATCH, "images"),
    "gpt2-small": (
        speed_torch.gpt2_step,
        speed_torch.gpt2_flops,
        speed_torch.TOKENS[0] * speed_torch.TOKENS[1],
        "tokens",
    ),
}
TRAIN_OPTIONS = {"train": ["--graph"], "train-tune": ["--graph", "--tune"]}


def train_ms(arguments, model, options):
    batch = speed_torch.BATCH if model == "resnet50" else speed_torch.TOKENS[0]
    environment = dict(os.environ)
    if arguments.library_path:
        environment["LD_LIBRARY_PATH"] = arguments.library_path
    said = subprocess.run(
        [arguments.train, f"--model={model}", "--precision=bf16", "--alloc=cache", f"--batch={batch}"]
        + [f"--steps={TRAIN_STEPS}", "--val-batches=1", "--quiet", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"\bstep_ms=([0-9.]+)", said.stdout)
    if said.returncode or not found:
        print(said.stdout, said.stderr, sep="\n", file=sys.stderr)
        return None
    return float(found.group(1))


def torch_steps(make):
    """The ways of PyTorch that work here, warmed up."""
    steps = {}
    for way in WAYS:
        begin = time.monotonic()
        try:
            step = make(way=way)
            speed_torch.median_step_ms(step)
            steps[way] = step
        except Exception as error:  # a way that PyTorch cannot do here is left out, with the reason
            print(f"left out: {way}: {str(error).splitlines()[0] if str(error) else type(error).__name__}", flush=True)
        print(f"# {way} was ready after {time.monotonic() - begin:.0f} s", flush=True)
    return steps


def report(model, way, values, peak):
    _, flops_of, items, unit = MODELS[model]
    ms = statistics.median(values)
    tflops = flops_of() / ms * 1e-9
    print(
        f"speed model={model} way={way} rounds={len(values)} step_ms={ms:.2f} fastest={min(values):.2f} "
        f"slowest={max(values):.2f} {unit}_per_second={items / ms * 1e3:.0f} tflops={tflops:.0f} "
        f"peak_percent={100 * tflops / peak:.0f}",
        flush=True,
    )
    return ms


def measure(arguments, model, peak):
    steps = torch_steps(MODELS[model][0])
    values = {}
    for _ in range(arguments.rounds):
        for way, step in steps.items():
            values.setdefault(way, []).append(speed_torch.median_step_ms(step, WARM_UP_AGAIN))
        for way, options in TRAIN_OPTIONS.items():
            ms = train_ms(arguments, model, options)
            if ms:
                values.setdefault(way, []).append(ms)
    medians = {way: report(model, way, values[way], peak) for way in values}
    ours = min((medians[way] for way in TRAIN_OPTIONS if way in medians), default=0.0)
    best = min((way for way in WAYS if way in medians), key=medians.get, default=None)
    if not ours or not best:
        print(f"result of={model} gain=0 best={best or 'none'}", flush=True)
        return
    print(f"result of={model} train_ms={ours:.2f} best={best} best_ms={medians[best]:.2f} "
          f"gain={medians[best] / ours:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", required=True)
    parser.add_argument("--library-path")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    side = 8192
    a, b = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    peak = 2.0 * side**3 / speed_torch.median_step_ms(lambda: a @ b) * 1e-9
    print(f"# peak: {peak:.0f} TFLOP/s; torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", flush=True)
    del a, b
    models = arguments.models or list(MODELS)
    for model in models:
        measure(arguments, model, peak)
        torch.compiler.reset()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
