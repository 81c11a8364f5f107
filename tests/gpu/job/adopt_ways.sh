#!/usr/bin/env bash
# Compares the ways in which PyTorch may keep memory under gpucap: its own cache, gpucap's pool (--adopt=pool, with strict
# and with deferred frees), and the driver's stream-ordered pool (--adopt=async). The same training with batches of
# changing size in each, and a CUDA graph at its end. Needs a card and PyTorch. job_check.sh runs it (part adopt).
#
# usage: adopt_ways.sh BUILD WORK
#
# Prints a line "figure adopt ..." for each way, a table that can be pasted into docs/benchmarks.md, and PASS or FAIL for
# whether the training ended well in each. Exit status: 0 when nothing failed. Variables: JOB_PYTHON_PATH (job_check.sh).
set -u
build=$1
work=$2
here=$(cd "$(dirname "$0")" && pwd)
budget_mib=16384
failed=0

value() { # value FILE KEY
    sed -n "s/^$2=//p" "$1" | tail -n 1
}

mib() { # mib FILE KEY: of a figure in bytes
    local bytes
    bytes=$(value "$1" "$2")
    [ -n "$bytes" ] && echo $((bytes / 1048576)) || echo '?'
}

# run WAY OPTION...
run() {
    local log=$work/adopt.$1 path=()
    [ -z "${JOB_PYTHON_PATH:-}" ] || path=("LD_LIBRARY_PATH=$JOB_PYTHON_PATH")
    env -u LD_LIBRARY_PATH -u PYTORCH_NO_CUDA_MEMORY_CACHING -u PYTORCH_CUDA_ALLOC_CONF PYTHONDONTWRITEBYTECODE=1 \
        "${path[@]}" timeout 60 "$build/gpucap" run "--max=${budget_mib}M" "${@:2}" -- \
        python3 "$here/../py/adopt_ways.py" train "$build/gpucap" >"$log" 2>"$log.err"
    local status=$?
    echo "figure adopt way=$1 step_ms=$(value "$log" step_ms) total_ms=$(value "$log" total_ms)" \
        "held_peak_mib=$(mib "$log" held_peak) held_idle_mib=$(mib "$log" held_idle)" \
        "held_middle_mib=$(mib "$log" held_middle) live_middle_mib=$(mib "$log" live_middle)" \
        "neighbour_mib=$(mib "$log" lent) status=$status graph: $(value "$log" graph)"
    rows+=("| $1 | $(value "$log" step_ms) | $(value "$log" total_ms) | $(mib "$log" held_peak) | $(mib "$log" held_middle) \
| $(mib "$log" live_middle) | $(mib "$log" lent) | $(mib "$log" held_idle) | $(value "$log" graph) |")
    # An error in a capture may end the program: the training itself was over by then.
    if [ -n "$(value "$log" held_idle)" ]; then
        echo "PASS adopt: the training ends well, way $1"
    else
        echo "FAIL adopt: the training breaks off, way $1: $(tail -n 1 "$log.err")"
        failed=1
    fi
}

mkdir -p "$work"
rows=()
run cache
run pool --adopt=pool
run pool-deferred --adopt=pool --free=deferred
run async --adopt=async
echo "| way | median step, ms | all steps, ms | held at most, MiB | held in the middle | in use there | a neighbour gets there | held when idle | CUDA graph |"
echo "|---|---|---|---|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"
exit "$failed"
