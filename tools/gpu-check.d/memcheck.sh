# gpu-check: compute-sanitizer. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# memcheck_one TOOL NAME COMMAND...: under compute-sanitizer, with a log of its own.
memcheck_one() {
    local tool=$1 log=$work/memcheck_$2.log
    shift 2
    GPUCAP_BUILD=$BUILD KERNELS_QUICK=1 "$tool" --tool memcheck --error-exitcode 9 --report-api-errors no "$@" >"$log" 2>&1 || true
}

# Every test of a family of kernels without its large cases, the tests of the data side (pictures prepared on the device,
# nvJPEG), and train itself with sizes that no vector divides. All at once: most of the time is the host's.
check_kernels_memcheck() {
    local tool program log name found=0 bad=''
    local odd=(--steps=2 --batch=3 --val-batches=1 --val-batch=5 --samples=64 --workers=2 --precision=bf16)
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || skip "no compute-sanitizer"
    for program in "$PROGRAMS"/kernels_cuda_* "$PROGRAMS"/kernels_*_cuda "$PROGRAMS"/kernels_data*; do
        [ -f "$program" ] && [ -x "$program" ] || continue
        found=$((found + 1))
        memcheck_one "$tool" "$(basename "$program")" "$program" &
    done
    [ "$found" -gt 0 ] || skip "no such test was built (nvcc is missing)"
    memcheck_one "$tool" train_resnet18 "$BUILD/train" --model=resnet18 --image=45 --augment=gpu --val-preprocess=gpu \
        --quantize=int8 "${odd[@]}" &
    memcheck_one "$tool" train_gpt "$BUILD/train" --model=gpt --layers=1 --width=72 --heads=3 --length=37 --vary \
        --quantize=int8 "${odd[@]}" &
    wait
    for log in "$work"/memcheck_*.log; do
        name=$(basename "$log" .log)
        cat "$log"
        grep -q 'ERROR SUMMARY: 0 errors' "$log" || bad="$bad ${name#memcheck_}"
    done
    [ -z "$bad" ] || { figure "errors, or no end:$bad (see the log)"; return 1; }
    figure "0 errors in $((found + 2)) programs"
}

check_pattern_memcheck() {
    local tool log=$work/pattern_memcheck.log
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || skip "no compute-sanitizer"
    can_run "$PROGRAMS/pattern"
    wrapped '' env GPUCAP_FREE=deferred "$tool" --tool memcheck --error-exitcode 9 --report-api-errors no \
        "$PROGRAMS/pattern" --threads=4 --seconds=10 --budget=256 --largest=16 2>&1 | tee "$log"
    grep -q 'ERROR SUMMARY: 0 errors' "$log" || { figure "see the log"; return 1; }
    figure "0 errors, $(pattern_sum "$log" blocks) blocks, $(pattern_sum "$log" wrong) wrong words"
}

check_memcheck() {
    local tool
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || skip "no compute-sanitizer"
    wrapped '' "$tool" --tool memcheck --error-exitcode 9 --report-api-errors no \
        "$PROGRAMS/transcript" --section=churn 2>&1 | tee "$work/memcheck.log"
    grep -q 'ERROR SUMMARY: 0 errors' "$work/memcheck.log" || { figure "see the log"; return 1; }
    figure "0 errors"
}
