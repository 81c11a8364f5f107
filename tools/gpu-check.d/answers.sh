# gpu-check: programs of frameworks give the same answers with and without the library. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# same_answers LOG PROGRAM...: programs of tests/gpu/py, natively and under the library.
same_answers() {
    local log=$work/$1 programs=() program status=0
    shift
    [ "$on_sim" = 0 ] || skip "the frameworks do not run on simgpu"
    for program in "$@"; do
        programs+=("$GPUCAP_ROOT/tests/gpu/py/$program.py")
    done
    for_python python3 "$GPUCAP_ROOT/tests/gpu/py/same_answers.py" "$LIBRARY" --seconds=220 "${programs[@]}" | tee "$log" ||
        status=1
    figure "$(tail -n 1 "$log")"
    return "$status"
}

check_features() {
    local module programs=()
    for module in torch jax cupy; do
        has_python "$module" && programs+=("features_$module")
    done
    [ ${#programs[@]} -gt 0 ] || skip "python3 has no torch, jax or cupy"
    same_answers features.log "${programs[@]}"
}

check_operators() {
    has_python torch || skip "python3 has no torch"
    same_answers operators.log torch_operators
}
