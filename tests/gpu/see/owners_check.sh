#!/usr/bin/env bash
# Compares the memory that `gpucap ps --owners` names with what NVML says that a process has, for frameworks and train.
# tools/gpu-check --only owners runs it.
#
# usage: owners_check.sh BUILD WORK
#
# Prints one line for each program: PASS or FAIL, named and NVML's MiB, and the largest owners. Exit status: 0 when
# nothing failed. OWNERS_PYTHON_PATH: LD_LIBRARY_PATH for Python's packages, which bring their own CUDA libraries.
set -u
build=$1
work=$2
gpucap=$build/gpucap
failed=0
least=99 # percent of NVML's figure
mkdir -p "$work"

has() { python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)" 2>/dev/null; }

nvml_mib() { nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | awk -F', ' -v pid="$1" '$1 == pid { print $2 }'; }

# Sums the lines of `ps --owners --bytes` that name a kind of memory: "104857600 1 malloc program".
named_mib() { awk '$1 ~ /^[0-9]+$/ { sum += $1 } END { printf "%d\n", sum / 1048576 }'; }

largest() { awk '$1 ~ /^[0-9]+$/ { printf "%d MiB %s %s;", $1 / 1048576, $NF, $(NF - 1); if (++rows == 4) exit }'; }

# check NAME COMMAND...: the command makes the file in $READY when it holds what it will hold, and then stays.
check() {
    local name=$1 pid nvml named
    shift
    rm -f "$work/ready"
    "$gpucap" run --record="$work/$name-%p.gpucap" -- "$@" >"$work/$name.log" 2>&1 &
    for _ in $(seq 600); do
        [ ! -e "$work/ready" ] && kill -0 $! 2>/dev/null || break
        sleep 0.1
    done
    pid=$(cat "$work/ready" 2>/dev/null || echo 0)
    "$gpucap" ps --owners="$pid" --bytes >"$work/$name.owners" 2>&1
    nvml=$(nvml_mib "$pid")
    named=$(named_mib <"$work/$name.owners")
    kill "$pid" 2>/dev/null
    wait $! 2>/dev/null
    if [ "${nvml:-0}" -gt 0 ] && [ $((named * 100)) -ge $((nvml * least)) ] && [ $((named * 99)) -le $((nvml * 100)) ]; then
        echo "PASS $name: $named of NVML's $nvml MiB have a name: $(largest <"$work/$name.owners")"
    else
        echo "FAIL $name: ${named:-no} of NVML's ${nvml:-unknown} MiB have a name: $(largest <"$work/$name.owners") $(tail -n 1 "$work/$name.log" | cut -c1-160)"
        failed=1
    fi
}

cat >"$work/torch_hold.py" <<'PY'
import os, sys, time, torch
from torch import nn
model = nn.Sequential(nn.Conv2d(3, 64, 7), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(4096, 1000)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    loss = model(torch.randn(32, 3, 224, 224, device="cuda")).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
kept = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
open(sys.argv[1] + ".new", "w").write(str(os.getpid())); os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)
PY
cat >"$work/jax_hold.py" <<'PY'
import os, sys, time, jax, jax.numpy as jnp
x = jax.random.normal(jax.random.PRNGKey(0), (8, 64, 64, 16))
y = jax.lax.conv_general_dilated(x, jnp.ones((3, 3, 16, 32)), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
z = (jnp.ones((4096, 4096)) @ jnp.ones((4096, 4096))).block_until_ready(); y.block_until_ready()
open(sys.argv[1] + ".new", "w").write(str(os.getpid())); os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)
PY
cat >"$work/cupy_hold.py" <<'PY'
import os, sys, time, cupy
a = cupy.ones((4096, 4096), dtype=cupy.float32); b = a @ a; c = cupy.fft.fft(a); cupy.cuda.Device().synchronize()
open(sys.argv[1] + ".new", "w").write(str(os.getpid())); os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)
PY

if [ -n "${OWNERS_PYTHON_PATH:-}" ]; then python=(env LD_LIBRARY_PATH="$OWNERS_PYTHON_PATH"); else python=(env -u LD_LIBRARY_PATH); fi
if has torch; then
    check torch "${python[@]}" python3 "$work/torch_hold.py" "$work/ready"
    check torch_cache_off "${python[@]}" PYTORCH_NO_CUDA_MEMORY_CACHING=1 python3 "$work/torch_hold.py" "$work/ready"
fi
has jax && check jax "${python[@]}" XLA_PYTHON_CLIENT_MEM_FRACTION=0.05 python3 "$work/jax_hold.py" "$work/ready"
has cupy && check cupy "${python[@]}" python3 "$work/cupy_hold.py" "$work/ready"
# train is asked when its log has a step: it then holds all that it will hold.
# shellcheck disable=SC2016
check train bash -c '"$0" --model=resnet50 --precision=bf16 --steps=4000 --quiet --log="$2" & pid=$!
    until grep -q "\"event\":\"step\"" "$2" 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done; echo $pid >"$1"; wait $pid' \
    "$build/train" "$work/ready" "$work/train.steps"
exit "$failed"
