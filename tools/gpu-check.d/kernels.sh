# gpu-check: CUDA kernels of train. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

check_kernels() {
    if ! ctest --test-dir "$BUILD" -N -L gpu | grep -q 'Total Tests: [1-9]'; then
        skip "no such test was built (nvcc is missing)"
    fi
    ctest --test-dir "$BUILD" -L gpu -j 4 --output-on-failure | tee "$work/kernels.log"
    figure "$(grep -c ' Passed ' "$work/kernels.log" || true) tests passed, $(grep -c '\*\*\*Skipped' "$work/kernels.log" || true) skipped"
}
