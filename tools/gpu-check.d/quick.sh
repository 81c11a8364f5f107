# gpu-check: the quick starts of docs/guide.md. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

check_quick() {
    local status=0
    [ "$on_sim" = 0 ] || skip "the frameworks do not run on simgpu"
    QUICK_PYTHON_PATH=$GPUCAP_CHECK_PYTHON_PATH "$GPUCAP_ROOT/tests/gpu/quick/quick_starts.sh" "$BUILD" "$work/quick" |
        tee "$work/quick.log" || status=1
    figure "$(grep -c '^PASS ' "$work/quick.log" || true) do, $(grep -c '^FAIL ' "$work/quick.log" || true) do not"
    return "$status"
}
