# gpu-check: train beside PyTorch. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

SPEED_STEPS=60

# speed_of FILE MODEL KEY [GREP]: the smallest value of a key over a model's lines.
speed_of() {
    grep "model=$2 " "$1" | grep -e "${4:-}" | sed -n "s/.* $3=\\([0-9.]*\\).*/\\1/p" | sort -g | head -n 1
}

# speed_train MODEL ARG...: a step of train's in ms, the better of with and without a graph, as a line in speed.train.
speed_train() {
    local model=$1 extra
    shift
    for extra in '' --graph; do
        "$BUILD/train" --model="$model" --precision=bf16 --alloc=cache --steps="$SPEED_STEPS" --val-batches=1 --quiet \
            "$@" ${extra:+"$extra"} | sed "s/^/graph=$([ -n "$extra" ] && echo 1 || echo 0) /" | tee -a "$work/speed.train"
    done
}

# The same models, batches and precision by train and by PyTorch eager, in one run on one card. The peak is the card's
# own large bf16 matrix product. GFLOP of a step as in speed_torch.py.
check_speed() {
    local model ours theirs best peak line=
    [ "$on_sim" = 0 ] || skip "there is no speed to measure on simgpu"
    [ -f "$BUILD/libtrain_cuda.so" ] || skip "no libtrain_cuda.so was built (nvcc is missing)"
    has_python torch || skip "python3 has no torch"
    rm -f "$work/speed.train"
    speed_train resnet50 --batch=128
    speed_train gpt2-small --batch=8
    for_python python3 "$GPUCAP_ROOT/tests/gpu/py/speed_torch.py" | tee "$work/speed.torch"
    peak=$(speed_of "$work/speed.torch" gemm tflops)
    for model in resnet50 gpt2-small; do
        ours=$(speed_of "$work/speed.train" "$model" step_ms)
        theirs=$(speed_of "$work/speed.torch" "$model" step_ms precision=autocast)
        best=$(speed_of "$work/speed.torch" "$model" step_ms)
        line="$line$(awk -v model="$model" -v ours="${ours:-0}" -v theirs="${theirs:-0}" -v best="${best:-0}" \
            -v peak="${peak:-1}" \
            -v gflop="$(speed_of "$work/speed.torch" "$model" gflop)" 'BEGIN {
            if (ours == 0) { printf "%s: train gave no figure; ", model; exit }
            printf "%s %.2f ms, PyTorch %.2f autocast (%.2fx), %.2f with bf16 weights (%.2fx), %.0f %% of %.0f TFLOP/s; ",
                model, ours, theirs, theirs / ours, best, best / ours, gflop / ours / peak * 100, peak }')"
    done
    figure "${line%; }"
}
