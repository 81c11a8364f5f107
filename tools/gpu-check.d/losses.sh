# gpu-check: equal losses: PyTorch with and without the library, train and PyTorch. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# torch_losses NAME [VARIABLE=VALUE...]: hashes of trainings without PyTorch's own cache, in losses.NAME.
torch_losses() {
    local program name=$1
    shift
    for program in torch_losses torch_workloads; do
        for_python PYTORCH_NO_CUDA_MEMORY_CACHING=1 CUBLAS_WORKSPACE_CONFIG=:4096:8 "$@" \
            python3 "$GPUCAP_ROOT/tests/gpu/py/$program.py" || return 1
    done >"$work/losses.$name" 2>"$work/losses.$name.err"
}

# Four runs side by side. Where two native runs differ, PyTorch itself is not deterministic and nothing can be compared.
check_torch_losses() {
    local key run native same='' unsure='' other='' pid pids=()
    has_python torch || skip "python3 has no torch"
    [ "$on_sim" = 0 ] || skip "PyTorch needs a real driver"
    torch_losses native & pids+=($!)
    torch_losses again & pids+=($!)
    torch_losses strict LD_PRELOAD="$LIBRARY" GPUCAP_FREE=strict & pids+=($!)
    torch_losses deferred LD_PRELOAD="$LIBRARY" GPUCAP_FREE=deferred & pids+=($!)
    for pid in "${pids[@]}"; do
        wait "$pid" || { tail -n 5 "$work"/losses.*.err; figure "a training failed"; return 1; }
    done
    for run in native again strict deferred; do
        echo "-- $run"
        cat "$work/losses.$run"
        grep -o '[a-z0-9_]* does not have a deterministic implementation' "$work/losses.$run.err" | sort -u || true
    done
    while IFS='=' read -r key native; do
        if [ "$(value "$work/losses.again" "$key")" != "$native" ]; then
            unsure="$unsure ${key#losses_}"
        elif [ "$(value "$work/losses.strict" "$key")" = "$native" ] && [ "$(value "$work/losses.deferred" "$key")" = "$native" ]; then
            same="$same ${key#losses_}"
        else
            other="$other ${key#losses_}"
        fi
    done < <(grep '^losses' "$work/losses.native")
    figure "strict and deferred equal:${same:- none}${other:+; DIFFERENT:$other}${unsure:+; two native runs differ:$unsure}"
    [ -n "$same" ] && [ -z "$other" ]
}

# Six models in float and in bf16, 20 steps each. On simgpu only the files are checked.
check_same_losses() {
    local precision status=0 options=()
    if [ "$on_sim" = 1 ]; then
        options=(--files-only --small --steps=3)
        command -v python3 >/dev/null || skip "there is no python3"
    else
        has_python torch || skip "python3 has no torch"
        [ -f "$BUILD/libtrain_cuda.so" ] || skip "no libtrain_cuda.so was built (nvcc is missing)"
    fi
    for_python python3 "$GPUCAP_ROOT/tests/gpu/py/same_losses.py" --train="$BUILD/train" --work="$work/same_losses" \
        --library-path="$LD_LIBRARY_PATH" "${options[@]}" | tee "$work/same_losses.log" || status=1
    rm -rf "$work/same_losses" # pictures of 20 steps
    if [ "$on_sim" = 1 ]; then
        figure "$(grep -c '^model=' "$work/same_losses.log" || true) of 12 sets of files are as expected"
        return "$status"
    fi
    figure "$(grep -c 'same=1' "$work/same_losses.log" || true) of $(grep -c '^model=' "$work/same_losses.log" || true)" \
        "agree; largest difference $(for precision in fp32 bf16; do
            printf '%s %s ' "$precision" "$(sed -n "s/.*precision=$precision .* worst=\\([^ ]*\\).*/\\1/p" \
                "$work/same_losses.log" | sort -g | tail -n 1)"
        done)"
    return "$status"
}
