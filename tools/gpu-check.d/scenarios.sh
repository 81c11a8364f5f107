# gpu-check: the scenarios on the card. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

SCENARIO_LETTERS=${GPUCAP_CHECK_SCENARIOS:-all}

# scenarios.txt holds the results: build/scenarios --from=scenarios.txt --write-docs draws and documents them anywhere.
check_scenarios() {
    local size=(--quick) text=$OUT/scenarios.log status=0
    can_run "$BUILD/scenarios"
    [ "$on_sim" = 0 ] || size=(--sim --tiny)
    # Some seconds less than this check has, for the training that runs when they are over.
    # shellcheck disable=SC2086 # several letters are several words
    "$BUILD/scenarios" $SCENARIO_LETTERS "${size[@]}" --seconds=$((CHECK_SECONDS - 12)) --out="$work" --save="$OUT/scenarios.txt" \
        2>&1 | tee "$text" || status=$?
    [ -f "$OUT/scenarios.txt" ] || { figure "no results: see the log"; return 1; }
    figure "$(grep -c '^skipped $' "$OUT/scenarios.txt") of $(grep -c '^scenario ' "$OUT/scenarios.txt") scenarios done$(
        sed -n 's/^(\(.\)) skipped: .*/, (\1) skipped/p' "$text" | tr -d '\n')"
    return "$status"
}
