#!/usr/bin/env bash
# What the processes of one job may rely on, shown on a card: one budget under a race and under kills, loans of idle
# memory, trainings whose peaks alternate, and what programs are told. tools/gpu-check --only job runs it.
#
# usage: job_check.sh BUILD WORK [PART...]     parts: race kills deaths loans trainings nudge peaks
#                                              torchrun adopt told (default: all)
#
# BUILD is a build folder, WORK one for files. Prints one line for each promise: PASS or FAIL, then a figure; lines with
# "figure" are only that. Exit status: 0 when nothing failed. Variables:
#   JOB_ON_SIM=1        on simgpu, with sizes for it and without PyTorch
#   JOB_SECONDS         of the race (60), and half of that with kills
#   JOB_PROCESSES, JOB_THREADS   of the race (16, 8)
#   JOB_PYTHON_PATH     LD_LIBRARY_PATH for Python's packages, which bring their own CUDA libraries
set -u
build=$1
work=$2
shift 2
parts=${*:-race kills deaths loans trainings nudge peaks torchrun adopt told}
here=$(cd "$(dirname "$0")" && pwd)
library=$build/libgpucap.so
gpucap=$build/gpucap
race=$build/tests/gpu/job_race
loan=$build/tests/gpu/job_loan_shared
on_sim=${JOB_ON_SIM:-0}
seconds=${JOB_SECONDS:-60}
failed=0

# A context takes 518 MiB by NVML on an H200, and grows by its streams and modules.
if [ "$on_sim" = 1 ]; then
    context=130 budget=4096 largest=64 loan_mib=1024 loan_budget=1600 told_max=2G
    export GPUCAP_SIM='1x16G;ctx=128M' GPUCAP_SIM_ID=${GPUCAP_SIM_ID:-job-check-$$}-job
    GPUCAP_LEDGER=$(mktemp -d) # of its own: all simulated machines have cards of one name
    export GPUCAP_LEDGER
else
    context=560 budget=32768 largest=256 loan_mib=20480 loan_budget=26624 told_max=8G
fi
budget_of_peaks=135 # percent of one training's peak, for two
window_s=1.5        # of a training's turns
windows=8

verdict() { # verdict STATUS TEXT...
    if [ "$1" = 0 ]; then
        echo "PASS ${*:2}"
    else
        echo "FAIL ${*:2}"
        failed=1
    fi
}

value() { # value FILE KEY
    sed -n "s/^$2=//p" "$1" | tail -n 1
}

# below A B: whether A <= B, also with fractions; false if one is no number.
below() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 <= b + 0) }'
}

for_python() {
    if [ -n "${JOB_PYTHON_PATH:-}" ]; then
        env LD_LIBRARY_PATH="$JOB_PYTHON_PATH" PYTHONDONTWRITEBYTECODE=1 "$@"
    else
        env -u LD_LIBRARY_PATH PYTHONDONTWRITEBYTECODE=1 "$@"
    fi
}

has_torch() {
    [ "$on_sim" = 0 ] && python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
}

run_race() {
    "$race" --library="$library" --budget="$budget" --context="$context" --largest="$largest" \
        --processes="${JOB_PROCESSES:-16}" --threads="${JOB_THREADS:-8}" "$@" || failed=1
}

part_race() { run_race --seconds="$seconds"; }
part_kills() { run_race --seconds="$(((seconds + 1) / 2))" --kill-ms=100; }
part_deaths() { run_race --deaths=5; }

# ask ROUND WAY: the borrower of a round; its line, and done.ROUND for the lender.
ask() {
    local status=0 ms bound=$((50 + 10 * loan_mib / 1024)) log=$work/borrower.$1
    timeout 150 env HOME=/nonexistent LD_PRELOAD="$library" GPUCAP_MAX="${loan_budget}M" GPUCAP_GROUP="$group" \
        "$loan" borrower "$meet" "$loan_mib" "$1" "$2" >"$log" 2>&1 || status=$?
    : >"$meet/done.$1"
    ms=$(value "$log" ms)
    [ "$on_sim" = 0 ] || bound=10000 # simgpu's times say nothing
    [ "$status" = 0 ] && below "$ms" "$bound"
    verdict $? "loan by $2: $loan_mib MiB idle in $3, served in ${ms:-?} ms (bound $bound), status $status"
}

new_meeting() {
    group=loan-$$-$RANDOM
    meet=$work/meet
    rm -rf "$meet"
    mkdir -p "$meet"
}

# A program that keeps what it has freed: the time of the loan alone.
part_loans() {
    local lender
    new_meeting
    timeout 200 env HOME=/nonexistent LD_PRELOAD="$library" GPUCAP_MAX="${loan_budget}M" GPUCAP_GROUP="$group" \
        GPUCAP_DECAY=off "$loan" lender "$meet" "$loan_mib" 2 >"$work/lender.log" 2>&1 &
    lender=$!
    ask 1 malloc "a C program"
    ask 2 create "a C program"
    wait "$lender"
    verdict $? "the lender went on"
}

# train_idle LOG ARGUMENT...: a training whose freed memory is the library's.
train_idle() {
    local log=$1
    shift
    for_python timeout 200 env LD_PRELOAD="$library" GPUCAP_MAX="${loan_budget}M" GPUCAP_GROUP="$group" \
        GPUCAP_DECAY=off PYTORCH_NO_CUDA_MEMORY_CACHING=1 python3 "$here/../py/job_torch.py" idle "$meet" "$loan_mib" \
        "$@" >"$log" 2>&1
}

# step_of RUN PHASE: the fastest step and the median, in ms.
step_of() {
    echo "$(value "$work/$1.log" "step_$2_ms") (median $(value "$work/$1.log" "median_$2_ms"))"
}

part_trainings() {
    local trainer status=0 before after equal
    has_torch || { echo "figure trainings: skipped, no PyTorch here"; return; }
    new_meeting
    train_idle "$work/alone.log" --alone
    verdict $? "a training alone ends well"
    new_meeting
    train_idle "$work/lends.log" &
    trainer=$!
    ask 1 malloc "a PyTorch training"
    ask 2 create "a PyTorch training"
    wait "$trainer" || status=$?
    verdict "$status" "the training that lent ended well"
    grep '^loss=' "$work/alone.log" >"$work/alone.losses"
    grep '^loss=' "$work/lends.log" >"$work/lends.losses"
    equal=$(cmp "$work/alone.losses" "$work/lends.losses" 2>&1 | grep -v EOF)
    [ -z "$equal" ] && [ "$(wc -l <"$work/lends.losses")" -ge 600 ]
    verdict $? "losses of the training that lent: $(wc -l <"$work/lends.losses") steps, bit-identical ${equal:+NOT }to alone"
    before=$(value "$work/lends.log" step_before_ms)
    for after in after_1 after_2; do
        below "$(value "$work/lends.log" "step_${after}_ms")" "$(awk -v b="$before" 'BEGIN { print b * 1.03 }')"
        verdict $? "step after the loan: $(step_of lends "$after"), before $(step_of lends before) (bound: fastest +3 %);" \
            "alone $(step_of alone "$after"), before $(step_of alone before)"
    done
}

# An unchanged PyTorch holds what it has cached; nudged, it gives it up.
part_nudge() {
    local trainer status=0
    has_torch || { echo "figure nudge: skipped, no PyTorch here"; return; }
    new_meeting
    for_python timeout 150 env LD_PRELOAD="$library" GPUCAP_MAX="${loan_budget}M" GPUCAP_GROUP="$group" GPUCAP_NUDGE=on \
        python3 "$here/../py/job_torch.py" cached "$meet" "$loan_mib" >"$work/nudge.log" 2>"$work/nudge.err" &
    trainer=$!
    ask 1 malloc "PyTorch's own cache, nudged"
    wait "$trainer" || status=$?
    [ "$status" = 0 ] && grep -q 'torch.cuda.empty_cache() was called' "$work/nudge.err"
    verdict $? "the nudged training went on, status $status, and said: $(grep -m 1 nudge: "$work/nudge.err" || echo nothing)"
}

# two_trainings LOG OPTION...: two whose peaks alternate, as one job. Prints how many ended well.
two_trainings() {
    local log=$1
    shift
    for_python timeout 150 "$build/tests/gpu/nvml_watch" -- "$gpucap" run "$@" -- bash -c '
        python3 "$0" peaks 0 "$1" "$2" >"$3.0" 2>&1 & first=$!
        python3 "$0" peaks 1 "$1" "$2" >"$3.1" 2>&1 & second=$!
        well=0
        wait "$first" && well=$((well + 1))
        wait "$second" && well=$((well + 1))
        echo "well=$well"' "$here/../py/job_torch.py" "$window_s" "$windows" "$log" >"$log" 2>&1
    value "$log" well
}

part_peaks() {
    local peak max with without sum
    has_torch || { echo "figure peaks: skipped, no PyTorch here"; return; }
    for_python timeout 100 "$build/tests/gpu/nvml_watch" -- "$gpucap" run --max=100% --adopt -- \
        python3 "$here/../py/job_torch.py" peaks 0 "$window_s" 2 >"$work/peak.log" 2>&1
    peak=$(value "$work/peak.log" nvml_tree_peak)
    [ "${peak:-0}" -gt 0 ] || { verdict 1 "peaks: a training alone gave no figure"; return; }
    max=$((peak * budget_of_peaks / 104857600))
    with=$(two_trainings "$work/peaks.with" "--max=${max}M" --adopt --wait=60s)
    without=$(two_trainings "$work/peaks.without" "--max=${max}M")
    sum=$(value "$work/peaks.with" nvml_tree_peak)
    [ "${with:-0}" = 2 ]
    verdict $? "alternating peaks, budget $max MiB: ${with:-0} of 2 finish with --adopt --wait=60s"
    [ "${without:-0}" = 1 ]
    verdict $? "the same without: ${without:-0} of 2 finish"
    below "${sum:-}" "$((max * 1048576))"
    verdict $? "peak of the sum $((${sum:-0} / 1048576)) MiB, sum of the peaks $((2 * peak / 1048576)) MiB, budget $max MiB"
}

# Two ranks that torchrun has started, in sessions of their own, on one card.
part_torchrun() {
    local log=$work/torchrun.log status=0 max=8192 held peak
    has_torch || { echo "figure torchrun: skipped, no PyTorch here"; return; }
    for_python timeout 100 "$build/tests/gpu/nvml_watch" -- "$gpucap" run "--max=${max}M" -- \
        python3 -m torch.distributed.run --standalone --nproc-per-node=2 "$here/../py/job_ranks.py" >"$log" 2>&1 || status=$?
    held=$(value "$log" mib)
    peak=$(value "$log" nvml_tree_peak)
    [ "$status" = 0 ] && [ "${held:-0}" -ge $((max - 2 * context - 512)) ]
    verdict $? "torchrun: two ranks fill the job's $max MiB: ${held:-?} MiB in blocks ($(value "$log" each)), status $status"
    below "${peak:-}" "$((max * 1048576))"
    verdict $? "torchrun: most by NVML $((${peak:-0} / 1048576)) MiB, budget $max MiB"
}

# Which of PyTorch's ways to leave caching to others is better.
part_adopt() {
    has_torch || { echo "figure adopt: skipped, no PyTorch here"; return; }
    "$here/adopt_ways.sh" "$build" "$work/adopt" || failed=1
}

# told NUMBER: free memory as program NUMBER was told when it started.
told() {
    env HOME=/nonexistent LD_PRELOAD="$library" GPUCAP_MAX="$told_max" "$build/tests/gpu/fill_dl" --mode=greedy \
        >"$work/told.$1" 2>&1
}

part_told() {
    local alone i wrong=0 seen=
    told 0
    alone=$(value "$work/told.0" free_at_start)
    for i in 1 2 3; do
        told "$i.a" &
        told "$i.b"
        wait $!
        for seen in "$(value "$work/told.$i.a" free_at_start)" "$(value "$work/told.$i.b" free_at_start)"; do
            [ -n "$seen" ] && [ "$seen" = "$alone" ] || wrong=$((wrong + 1))
        done
    done
    [ "$wrong" = 0 ] && [ -n "$alone" ]
    verdict $? "free as told to two programs that start together: ${alone:-none} bytes alone, $wrong of 6 were told another"
}

mkdir -p "$work"
for part in $parts; do
    begin=$SECONDS
    "part_$part"
    echo "figure $part took $((SECONDS - begin)) s"
done
[ "$on_sim" = 0 ] || rm -rf /dev/shm/*"$GPUCAP_SIM_ID"* "$GPUCAP_LEDGER"
exit "$failed"
