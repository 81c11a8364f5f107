# gpu-check: named memory against NVML. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

check_owners() {
    local status=0
    [ "$on_sim" = 0 ] || skip "the frameworks do not run on simgpu"
    OWNERS_PYTHON_PATH=$GPUCAP_CHECK_PYTHON_PATH "$GPUCAP_ROOT/tests/gpu/see/owners_check.sh" "$BUILD" "$work/owners" |
        tee "$work/owners.log" || status=1
    figure "$(sed -n 's/^PASS \([^:]*\): \([0-9]*\) of NVML.s \([0-9]*\) .*/\1 \2 of \3 MiB,/p' "$work/owners.log" | tr '\n' ' ')" \
        "$(grep -c '^FAIL ' "$work/owners.log" || true) failed"
    return "$status"
}
