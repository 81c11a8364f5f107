#!/usr/bin/env bash
# Runs the quick starts of docs/guide.md as they stand there, with small programs in the place of the user's.
# tools/gpu-check --only quick runs it.
#
# usage: quick_starts.sh BUILD WORK
#
# BUILD is a build folder, WORK one for files. Prints one line for each quick start: PASS, FAIL, or skipped with the
# reason. Exit status: 0 when nothing failed. QUICK_PYTHON_PATH: LD_LIBRARY_PATH for Python's packages, which bring
# their own CUDA libraries.
set -u
build=$1
work=$2
root=$(cd "$(dirname "$0")/../../.." && pwd)
gpucap=$build/gpucap
failed=0
mkdir -p "$work"

verdict() { # verdict STATUS TEXT...
    if [ "$1" = 0 ]; then
        echo "PASS ${*:2}"
    else
        echo "FAIL ${*:2}"
        failed=1
    fi
}

has() { python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)" 2>/dev/null; }

for_python() {
    if [ -n "${QUICK_PYTHON_PATH:-}" ]; then
        env LD_LIBRARY_PATH="$QUICK_PYTHON_PATH" "$@"
    else
        env -u LD_LIBRARY_PATH "$@"
    fi
}

# said FILE: what a program printed, in one line.
said() { grep -v '^gpucap: *this process' "$1" | tr '\n' ' ' | cut -c1-200; }

# The program in C is the guide's own text.
quick_cuda() {
    local cuda=${CUDA_HOME:-/usr/local/cuda}
    awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$root/docs/guide.md" >"$work/hog.c"
    gcc "$work/hog.c" -o "$work/hog" -I"$cuda/include" -L"$cuda/lib64" -lcudart -Wl,-rpath,"$cuda/lib64" 2>"$work/gcc.log" ||
        { echo "skipped: plain CUDA: $(head -n 1 "$work/gcc.log")"; return; }
    "$gpucap" run --max=8G -- "$work/hog" >"$work/hog.out" 2>&1 &&
        grep -q '^sees 8192 MiB,' "$work/hog.out" && grep -q 'out of memory$' "$work/hog.out"
    verdict $? "plain CUDA: $(said "$work/hog.out")"
}

quick_torch() {
    cat >"$work/torch_quick.py" <<'PY'
import torch
total = torch.cuda.mem_get_info()[1]
assert total == torch.cuda.get_device_properties(0).total_memory == 8 << 30, total
held = []
try:
    while True:
        held.append(torch.zeros(256 << 20, dtype=torch.uint8, device="cuda"))
except RuntimeError as error:  # without its cache, PyTorch reports the runtime's error as it is
    assert "out of memory" in str(error), error
    print(f"told {total >> 30} GiB, took {len(held) * 256} MiB, then {type(error).__name__}")
assert 24 <= len(held) < 32, len(held)
PY
    has torch || { echo "skipped: PyTorch is not here"; return; }
    for_python "$gpucap" run --max=8G -- python3 "$work/torch_quick.py" >"$work/torch.out" 2>&1
    verdict $? "PyTorch: $(said "$work/torch.out")"
    for_python env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$gpucap" run --max=8G --free=deferred -- python3 "$work/torch_quick.py" \
        >"$work/torch_off.out" 2>&1
    verdict $? "PyTorch, own cache off: $(said "$work/torch_off.out")"
}

# jax_line GIB VARIABLE...: the part of the cap that JAX takes.
jax_line() {
    local expected=$1
    shift
    for_python env "$@" "$gpucap" run --max=8G -- python3 -c '
import sys, jax, jax.numpy as jnp
jnp.zeros(8).block_until_ready()
limit = jax.devices()[0].memory_stats()["bytes_limit"] / 2**30
print(f"takes {limit:.2f} GiB of 8")
sys.exit(abs(limit - float(sys.argv[1])) > 0.05)' "$expected" >"$work/jax.out" 2>&1
    verdict $? "JAX $*: $(tail -n 1 "$work/jax.out")"
}

quick_jax() {
    has jax || { echo "skipped: JAX is not here"; return; }
    jax_line 6 QUICK=1
    jax_line 7.2 XLA_PYTHON_CLIENT_MEM_FRACTION=.90
}

quick_cupy() {
    has cupy || { echo "skipped: CuPy is not here"; return; }
    for_python "$gpucap" run --max=8G -- python3 -c '
import cupy
held = []
try:
    while True:
        held.append(cupy.zeros(256 << 20, dtype=cupy.uint8))
except cupy.cuda.memory.OutOfMemoryError:
    print(f"took {len(held) * 256} MiB, then OutOfMemoryError")
assert 24 <= len(held) < 32, len(held)' >"$work/cupy.out" 2>&1
    verdict $? "CuPy: $(said "$work/cupy.out")"
}

# Two runs of one group, 12 GiB each of 20: the second one waits for the first.
quick_group() {
    local group=night-$$ first status=0
    cat >"$work/hold.py" <<'PY'
import sys, time, torch
held = torch.zeros(12 << 30, dtype=torch.uint8, device="cuda")
open(sys.argv[1], "w").close()
time.sleep(3)
PY
    has torch || { echo "skipped: groups: PyTorch is not here"; return; }
    rm -f "$work/held.a"
    for_python "$gpucap" run --group="$group" --max=20G --wait=60s -- python3 "$work/hold.py" "$work/held.a" >"$work/a.out" 2>&1 &
    first=$!
    while [ ! -e "$work/held.a" ] && kill -0 "$first" 2>/dev/null; do sleep 0.1; done
    "$gpucap" ps --prometheus >"$work/ps.out" 2>&1 || status=$? # the table needs a library that may not be here
    grep -q "$group" "$work/ps.out" || status=1
    [ "$status" = 0 ] || echo "figure ps said, status $status: $(tr '\n' '|' <"$work/ps.out" | cut -c1-400)"
    for_python "$gpucap" run --group="$group" --max=20G --wait=60s --summary -- python3 "$work/hold.py" "$work/held.b" \
        >"$work/b.out" 2>&1 || status=2
    wait "$first" || status=3
    verdict "$status" "a group, 2 x 12 GiB of 20, and ps (status $status): $(tail -n 1 "$work/b.out" | cut -c1-160)"
}

quick_torchrun() {
    cat >"$work/two.py" <<'PY'
import torch
held = torch.zeros(2 << 30, dtype=torch.uint8, device="cuda:0")
assert torch.cuda.mem_get_info()[1] == 8 << 30
PY
    has torch || { echo "skipped: torchrun: PyTorch is not here"; return; }
    for_python "$gpucap" run --max=8G --summary -- python3 -m torch.distributed.run --nproc-per-node=2 "$work/two.py" >"$work/torchrun.out" 2>&1
    verdict $? "torchrun, 2 processes: $(grep '^gpucap: ' "$work/torchrun.out" | tail -n 1 | cut -c1-160)"
}

quick_fleet() {
    [ -f "$build/libtrain_cuda.so" ] && nvidia-smi -L >/dev/null 2>&1 ||
        { echo "skipped: fleet: needs a GPU and a train that was built with CUDA"; return; }
    (cd "$build" && ./fleet --each=8G --processes=4 --baseline=serial -- train --model=resnet50 --precision=bf16 --steps=20) \
        >"$work/fleet.out" 2>&1
    verdict $? "fleet of 4: $(tail -n 1 "$work/fleet.out" | cut -c1-160)"
}

for quick in cuda torch jax cupy group torchrun fleet; do
    "quick_$quick"
done
exit "$failed"
