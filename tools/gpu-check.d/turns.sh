# gpu-check: the cost of the library, its pool and recordings, by frameworks that run in turns. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

OVERHEAD_TURNS=1000
OVERHEAD_SECONDS=60 # of turns; one is right to some percent only, so many are needed
OVERHEAD_EACH=6
OVERHEAD_CPUS=1     # with four, a turn of CuPy differs from the next three times as much
OVERHEAD_CPUS_JAX=4 # its threads wait for each other: with one, twice as much
CACHE_OFF_TURNS=25
OVERHEAD_STEPS='--steps=36 --skip=12' # whole rounds of the sizes that the programs go through
WORKLOAD_TURNS=${GPUCAP_CHECK_WORKLOAD_TURNS:-100} # of the 120 steps that they have
WORKLOAD_EACH=${GPUCAP_CHECK_WORKLOAD_EACH:-1}     # processes of each kind, if the card has room
RECORD_TURNS=${GPUCAP_CHECK_RECORD_TURNS:-60}
RECORD_NAMES=${GPUCAP_CHECK_RECORD_NAMES:-resnet50_var gpt_varlen two_models segment_varres speech_varlen}
WORKLOAD_NAMES=${GPUCAP_CHECK_WORKLOADS:-resnet50_var gpt_varlen two_models segment_varres speech_varlen}
AS_LONG=GPUCAP_DECAY=$((5 * 4 * WORKLOAD_EACH)) # four programs in turns: five seconds of each

# turns OPTIONS PROGRAM VARIANT...: overhead_turns.py, its lines also in turns.log.
turns() {
    # shellcheck disable=SC2086 # options are several words
    for_python python3 "$GPUCAP_ROOT/tests/gpu/py/overhead_turns.py" $1 --errors="$work/turns" "${@:2}" | tee -a "$work/turns.log"
}

# turns_of PROGRAM NAME KEY: a figure of turns.log.
turns_of() {
    sed -n "s/^program=$1 run=$2 .* $3=\\([0-9.]*\\).*/\\1/p" "$work/turns.log" | tail -n 1
}

# ratio_of PROGRAM NAME: what a step takes against the first run's, and the standard error of that.
ratio_of() {
    echo "$(turns_of "$1" "$2" ratio)x ($(turns_of "$1" "$2" error))"
}

# Programs with their own caches hardly notice the library; without a cache they have ours.
check_overhead() {
    local program off share cpus line=
    [ "$on_sim" = 0 ] || skip "there is no speed to measure on simgpu"
    for program in torch jax cupy; do
        has_python "$program" || continue
        cpus=$OVERHEAD_CPUS
        share=''
        off=''
        case $program in
        torch) off=PYTORCH_NO_CUDA_MEMORY_CACHING=1 ;;
        jax)
            share=,XLA_PYTHON_CLIENT_MEM_FRACTION=0.05 # each takes its part of the card at once
            off=XLA_PYTHON_CLIENT_ALLOCATOR=platform
            cpus=$OVERHEAD_CPUS_JAX
            ;;
        esac
        turns "--each=$OVERHEAD_EACH --cpus=$cpus --turns=$OVERHEAD_TURNS --seconds=$OVERHEAD_SECONDS $OVERHEAD_STEPS" \
            "$program" "native$share" "wrapped$share,LD_PRELOAD=$LIBRARY"
        line="$line$program wrapped $(ratio_of "$program" wrapped)"
        if [ -n "$off" ]; then
            turns "--turns=$CACHE_OFF_TURNS $OVERHEAD_STEPS" "$program" "native$share" "bare,$off" \
                "pooled,$off,LD_PRELOAD=$LIBRARY,GPUCAP_FREE=deferred"
            line="$line, own cache off $(ratio_of "$program" bare), pooled $(ratio_of "$program" pooled)"
        fi
        line="$line; "
    done
    [ -n "$line" ] || skip "python3 has none of torch, jax, cupy"
    figure "${line%; }"
}

# Reads PyTorch's libraries once. Who loads a kernel first from a cold disk waits for it: 1.9 s in a step of 0.2 s.
warm_disk() {
    local packages
    packages=$(python3 -c 'import importlib.util, os; print(os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin)))')
    find "$packages/torch/lib" "$packages/nvidia" -name '*.so*' -size +10M -exec cat {} + >/dev/null 2>&1 || true
}

check_record() {
    local program line='' off=PYTORCH_NO_CUDA_MEMORY_CACHING=1,LD_PRELOAD=$LIBRARY,GPUCAP_FREE=deferred
    [ "$on_sim" = 0 ] || skip "there is no speed to measure on simgpu"
    "$BUILD/bench_pair" --engines=gpucap-deferred,gpucap-record,gpucap-stacks --live=1 --passes=4 | tee "$work/record.pair"
    if has_python torchvision; then
        warm_disk
        for program in $RECORD_NAMES; do
            turns "--turns=$RECORD_TURNS --steps=1 --warm=15" "$program" "pooled,$off" \
                "recorded,$off,GPUCAP_RECORD=$work/record-%p.gpucap" \
                "stacks,$off,GPUCAP_RECORD=$work/stacks-%p.gpucap,GPUCAP_STACKS=on"
            line="$line$program recorded $(ratio_of "$program" recorded), with stacks $(ratio_of "$program" stacks); "
            rm -f "$work"/*.gpucap
        done
    fi
    figure "${line%; }"
}

# The workloads behind the recorded traces, without PyTorch's cache under the library, against PyTorch with its own.
check_workloads() {
    local program line=
    [ "$on_sim" = 0 ] || skip "there is no speed to measure on simgpu"
    has_python torch || skip "python3 has no torch"
    warm_disk
    for program in $WORKLOAD_NAMES; do
        has_python "$([ "$program" = gpt_varlen ] && echo transformers || echo torchvision)" || continue
        turns "--each=$WORKLOAD_EACH --turns=$WORKLOAD_TURNS --steps=1 --warm=15" "$program" cache "wrapped,LD_PRELOAD=$LIBRARY" \
            expandable,PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
            "pooled,PYTORCH_NO_CUDA_MEMORY_CACHING=1,LD_PRELOAD=$LIBRARY,GPUCAP_FREE=deferred,GPUCAP_LOG=info,$AS_LONG"
        line="$line$program wrapped $(ratio_of "$program" wrapped)"
        line="$line, pooled $(ratio_of "$program" pooled), all steps $(turns_of "$program" pooled total)x (quiet $(turns_of "$program" pooled quiet)x)"
        line="$line, held $(mib "$(turns_of "$program" pooled held)") of $(mib "$(turns_of "$program" expandable held)") ($(mib "$(turns_of "$program" cache held)")); "
    done
    [ -n "$line" ] || skip "python3 has neither torchvision nor transformers"
    figure "${line%; }"
}
