# gpu-check: compute-sanitizer. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# Every test of a family of kernels, without its large cases.
check_kernels_memcheck() {
    local tool program count=0
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) || skip "no compute-sanitizer"
    for program in "$PROGRAMS"/kernels_cuda_* "$PROGRAMS"/kernels_*_cuda; do
        [ -x "$program" ] || continue
        GPUCAP_BUILD=$BUILD KERNELS_QUICK=1 "$tool" --tool memcheck --error-exitcode 9 --report-api-errors no \
            "$program" 2>&1 | tee "$work/$(basename "$program").log"
        grep -q 'ERROR SUMMARY: 0 errors' "$work/$(basename "$program").log" || { figure "$(basename "$program"): see the log"; return 1; }
        count=$((count + 1))
    done
    [ "$count" -gt 0 ] || skip "no such test was built (nvcc is missing)"
    figure "0 errors in $count programs"
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
