# gpu-check: the start-up time that the library adds to the shortest program. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

STARTUP_RUNS=21

check_startup() {
    local program=$PROGRAMS/start_probe_static
    [ -x "$program" ] && [ "$on_sim" = 0 ] || program=$PROGRAMS/start_probe_shared
    "$PROGRAMS/startup" --runs="$STARTUP_RUNS" --env=LD_PRELOAD="$LIBRARY" --env=GPUCAP_MAX="$cap" -- "$program" |
        tee "$work/startup.log"
    figure "$(value "$work/startup.log" difference_ms) ms more than $(value "$work/startup.log" native_ms) ms"
}
