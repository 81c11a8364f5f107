# gpu-check: reuse of freed memory under running work. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

LITMUS_RUNS=${GPUCAP_CHECK_LITMUS_RUNS:-1000}
LITMUS_UNFENCED_RUNS=20

# litmus_wrong FILE: wrong runs of all scenarios.
litmus_wrong() {
    sed -n 's/^litmus .*wrong=//p' "$1" | awk '{ n += $1 } END { print n + 0 }'
}

check_litmus() {
    local mode status=0 missed total pid pids=()
    can_run "$PROGRAMS/litmus"
    for mode in strict deferred; do # side by side: nothing is timed
        wrapped '' env GPUCAP_FREE="$mode" "$PROGRAMS/litmus" --repeat="$LITMUS_RUNS" >"$work/litmus.$mode" &
        pids+=($!)
    done
    # A list without fences must fail every scenario, or passing them would show nothing.
    "$PROGRAMS/litmus" --repeat="$LITMUS_UNFENCED_RUNS" --allocator=unfenced | tee "$work/litmus.unfenced" || true
    missed=$(sed -n 's/^litmus name=\(.*\) runs=.* wrong=0$/\1/p' "$work/litmus.unfenced" | paste -s -d ' ' -)
    total=$(grep -c '^litmus ' "$work/litmus.unfenced") || true
    [ -z "$missed" ] && [ "$total" -gt 0 ] || status=1
    for pid in "${pids[@]}"; do
        wait "$pid" || status=1
    done
    cat "$work/litmus.strict" "$work/litmus.deferred"
    figure "$total scenarios, $LITMUS_RUNS runs each: wrong $(litmus_wrong "$work/litmus.strict") strict," \
        "$(litmus_wrong "$work/litmus.deferred") deferred; without fences $(litmus_wrong "$work/litmus.unfenced") of" \
        "$((total * LITMUS_UNFENCED_RUNS))${missed:+, none in $missed}"
    return "$status"
}
