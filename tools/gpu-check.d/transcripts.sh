# gpu-check: the driver's answers without and with the library, and on simgpu. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# transcripts NAME PROGRAM [ARG...]: native, wrapped without a cap and wrapped under one that is never reached.
transcripts() {
    local name=$1 status=0
    shift
    can_run "$1"
    "$@" >"$work/$name.native"
    wrapped "" env GPUCAP_ZERO=on "$@" >"$work/$name.wrapped"
    wrapped 90% env GPUCAP_ZERO=on "$@" >"$work/$name.capped"
    same "wrapped, no cap" "$work/$name.native" "$work/$name.wrapped" || status=1
    same "wrapped, generous cap" "$work/$name.native" "$work/$name.capped" || status=1
    if grep -q ': ENDED with' "$work/$name.native"; then
        grep ': ENDED with' "$work/$name.native"
        status=1
    fi
    figure "$(wc -l <"$work/$name.native") lines"
    return "$status"
}

check_driver_dlsym() {
    transcripts driver "$PROGRAMS/transcript" --lookup=dlsym
}

check_driver_procaddr() {
    local status=0
    "$PROGRAMS/transcript" --lookup=procaddr >"$work/procaddr.native"
    wrapped 90% env GPUCAP_ZERO=on "$PROGRAMS/transcript" --lookup=procaddr >"$work/procaddr.capped"
    same "wrapped, generous cap" "$work/procaddr.native" "$work/procaddr.capped" || status=1
    [ ! -f "$work/driver.native" ] || same "both lookups" "$work/driver.native" "$work/procaddr.native" || status=1
    figure "$(wc -l <"$work/procaddr.native") lines"
    return "$status"
}

check_runtime_static() {
    transcripts runtime_static "$PROGRAMS/transcript_rt_static"
}

check_runtime_shared() {
    transcripts runtime_shared "$PROGRAMS/transcript_rt_shared"
}

# The transcripts of this card, taken now unless an earlier check has them.
native_transcripts() {
    [ -s "$work/driver.native" ] || "$PROGRAMS/transcript" >"$work/driver.native"
    [ -s "$work/runtime_shared.native" ] || "$PROGRAMS/transcript_rt_shared" >"$work/runtime_shared.native"
}

check_conformance() {
    local status=0 scene
    native_transcripts
    simulated "$PROGRAMS/transcript" >"$work/driver.sim"
    simulated "$PROGRAMS/transcript_rt_shared" >"$work/runtime.sim"
    rm -f /dev/shm/*"gpu-check-sim-$$"*
    same "driver: this card and simgpu" "$work/driver.native" "$work/driver.sim" || status=1
    same "runtime: this card and simgpu" "$work/runtime_shared.native" "$work/runtime.sim" || status=1
    # The stream-ordered pool on a card that is nearly full: what simgpu passes in the test room.
    for scene in pool_grows_by_chunks pool_gives_back_empty_chunks pool_joins_no_gaps; do
        "$BUILD/tests/integration/prog_room" "$scene" || status=1
    done
    figure "$(diff "$work/driver.native" "$work/driver.sim" | grep -c '^<') and $(diff "$work/runtime_shared.native" \
        "$work/runtime.sim" | grep -c '^<') lines differ"
    return "$status"
}

check_golden() {
    local status=0
    [ -f "$GOLDEN/driver.txt" ] || skip "nothing is recorded yet (--record)"
    native_transcripts
    same "driver: recorded and now" "$GOLDEN/driver.txt" "$work/driver.native" || status=1
    same "runtime: recorded and now" "$GOLDEN/transcript_rt.txt" "$work/runtime_shared.native" || status=1
    figure "$([ "$status" = 0 ] && echo equal || echo "differs (record again?)")"
    return "$status"
}
