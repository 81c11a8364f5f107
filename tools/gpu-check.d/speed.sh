# gpu-check: train beside PyTorch. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

SPEED_LEAST_GAIN=1.1 # train must be this many times as fast as the best way of PyTorch
SPEED_ROUNDS=${GPUCAP_CHECK_SPEED_ROUNDS:-3}

# Lines of speed_turns.py as a section of docs/benchmarks.md; where the folder is only a copy, $OUT has it too.
speed_write_docs() {
    local card device
    [ -x "$BUILD/bench_docs" ] || return 0
    card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
    device="${card/, /, driver }, $(nproc) cores $(uname -m)"
    grep '^speed ' "$work/speed.log" | "$BUILD/bench_docs" --key="speed $(echo "${card%%,*}" | tr 'A-Z ' 'a-z-')" \
        --title="A training step of train and of PyTorch, bf16 with float weights, ResNet-50 with 128 pictures and GPT-2-small with 8 x 1024 tokens (medians of rounds in turns; graphs: torch.compile with mode=reduce-overhead; train: with --graph, and with --tune too)" \
        --command="tools/gpu-check --only speed" --device="$device" "$GPUCAP_ROOT/docs/benchmarks.md"
    cp "$GPUCAP_ROOT/docs/benchmarks.md" "$OUT/benchmarks.md"
}

# The same models, batches and precision policy by train and by PyTorch, in turns in one run on one card.
check_speed() {
    local status=0
    [ "$on_sim" = 0 ] || skip "there is no speed to measure on simgpu"
    [ -f "$BUILD/libtrain_cuda.so" ] || skip "no libtrain_cuda.so was built (nvcc is missing)"
    has_python torch || skip "python3 has no torch"
    for_python python3 "$GPUCAP_ROOT/tests/gpu/py/speed_turns.py" --train="$BUILD/train" \
        --library-path="$LD_LIBRARY_PATH" --rounds="$SPEED_ROUNDS" | tee "$work/speed.log" || status=1
    speed_write_docs
    figure "$(sed -n 's/^result of=\([^ ]*\) train_ms=\([^ ]*\) best=\([^ ]*\) best_ms=\([^ ]*\) gain=\(.*\)/\1 \2 ms, PyTorch \3 \4 ms (\5x);/p' \
        "$work/speed.log" | paste -s -d ' ' -) at least ${SPEED_LEAST_GAIN}x is wanted"
    awk -v least="$SPEED_LEAST_GAIN" '/^result / { n++; sub(/.*gain=/, ""); if ($0 + 0 < least) low++ }
        END { exit !(n == 2 && !low) }' "$work/speed.log" || status=1
    return "$status"
}
