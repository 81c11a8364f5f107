# gpu-check: caps of programs and frameworks, measured by NVML. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# watch LOG PROGRAM...: the program under the cap, its memory watched by NVML from outside.
watch() {
    local log=$1 status=0
    shift
    "$PROGRAMS/nvml_watch" --cap="$cap" --env=LD_PRELOAD="$LIBRARY" --env=GPUCAP_MAX="$cap" -- "$@" >"$log" 2>&1 || status=$?
    cat "$log"
    return "$status"
}

cap_fill() {
    local mode status=0 peak=0 now
    can_run "$1"
    for mode in fill greedy threads graph; do
        echo "--- $mode"
        watch "$work/cap.log" "$1" "--mode=$mode" || status=1
        now=$(value "$work/cap.log" nvml_peak)
        [ "${now:-0}" -le "$peak" ] || peak=$now
    done
    figure "NVML peak $(mib "$peak") of ${cap%G} GiB, by $(value "$work/cap.log" matched_by)"
    return "$status"
}

check_cap_dlsym() { cap_fill "$PROGRAMS/fill_dl"; }
check_cap_direct() { cap_fill "$PROGRAMS/fill_direct"; }
check_cap_static() { cap_fill "$PROGRAMS/fill_rt_static"; }
check_cap_shared() { cap_fill "$PROGRAMS/fill_rt_shared"; }

# cap_python MODULE: tests/gpu/py/MODULE_cap.py, which is told how large the card should look.
cap_python() {
    local status=0 extra=
    has_python "$1" || skip "python3 has no $1"
    export PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=$GPUCAP_CHECK_PYTHON_PATH
    [ -n "$LD_LIBRARY_PATH" ] || unset LD_LIBRARY_PATH
    watch "$work/py.log" python3 "$GPUCAP_ROOT/tests/gpu/py/$1_cap.py" \
        $((${cap%G} << 30)) || status=1
    [ "$1" != jax ] || extra=", bytes_limit $(mib "$(value "$work/py.log" bytes_limit)")"
    figure "NVML peak $(mib "$(value "$work/py.log" nvml_peak)") of ${cap%G} GiB$extra"
    return "$status"
}

check_cap_torch() { cap_python torch; }
check_cap_jax() { cap_python jax; }
check_cap_cupy() { cap_python cupy; }
