# gpu-check: the contents of blocks. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

PATTERN_SECONDS=${GPUCAP_CHECK_PATTERN_SECONDS:-10}

# pattern_runs FILE [ARG...]: each mode of free behind one stream and behind several. 4 GiB live at a time, and a cap that
# leaves room for a context and little else, so that free memory has to be put together again. Smaller on simgpu.
pattern_runs() {
    local log=$1 mode streams size=(--budget=4096 --largest=256) max=5G status=0
    shift
    can_run "$PROGRAMS/pattern"
    [ "$on_sim" = 0 ] || { size=(--budget=64 --largest=4) max=1G; }
    : >"$log"
    for mode in strict deferred; do
        for streams in 1 4; do
            echo "--- $mode, $streams streams"
            wrapped "$max" env GPUCAP_FREE="$mode" "$PROGRAMS/pattern" --streams="$streams" "${size[@]}" "$@" 2>&1 |
                tee -a "$log" || status=1
        done
    done
    return "$status"
}

# pattern_sum FILE FIELD: of all runs.
pattern_sum() {
    sed -n "s/^pattern .*$2=\\([0-9]*\\).*/\\1/p" "$1" | awk '{ n += $1 } END { print n + 0 }'
}

check_pattern() {
    local status=0
    pattern_runs "$work/pattern.log" --threads=8 --seconds="$PATTERN_SECONDS" || status=1
    figure "$(pattern_sum "$work/pattern.log" blocks) blocks, $(pattern_sum "$work/pattern.log" wrong) wrong words," \
        "$(pattern_sum "$work/pattern.log" refused) refused, in $(grep -c '^pattern ' "$work/pattern.log" || true) runs"
    return "$status"
}
