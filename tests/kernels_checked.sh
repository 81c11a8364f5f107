#!/usr/bin/env bash
# Checks that every operation (OPS_LIST) is called by a program that gpu-check runs under compute-sanitizer
# (check_kernels_memcheck): a new operation without such a test would never be looked at there.
set -eu
cd "$(dirname "$0")/.."

programs='tests/gpu/kernels_cuda_*.c tests/gpu/kernels_*_cuda.c tests/gpu/kernels_data*.c'
missing=0
for operation in $(sed -n '/^#define OPS_LIST/,/^$/s/.*X(\([a-z_]*\)).*/\1/p' kernels/ops.h); do
    [ "$operation" != name ] || continue
    # shellcheck disable=SC2086 # patterns
    if ! grep -qE "(KERNELS_RUN\(|->)$operation\b" $programs; then
        echo "$operation: no program of check_kernels_memcheck calls it"
        missing=1
    fi
done
exit "$missing"
