# gpu-check: train --profile. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# profile_key FILE KEY: the value of a key in a result line.
profile_key() {
    sed -n "s/.* $2=\\([^ ]*\\).*/\\1/p" "$1" | head -n 1
}

# profile_train NAME ARG...: trains without and with a profile. The losses must be the same; the table and the file go
# to OUT. Says how long a step took with events and without a graph, how much of it operations filled, and with a graph.
profile_train() {
    local name=$1 file=$OUT/profile-$1.pftrace key
    shift
    "$BUILD/train" "$@" --quiet >"$work/profile.plain"
    "$BUILD/train" "$@" --profile="$file" >"$work/profile.$name" 2>"$OUT/profile-$name.txt"
    cat "$OUT/profile-$name.txt" "$work/profile.$name"
    for key in loss_first loss_last; do
        [ "$(profile_key "$work/profile.plain" $key)" = "$(profile_key "$work/profile.$name" $key)" ] || {
            figure "$name: with a profile, $key is another"
            return 1
        }
    done
    python3 "$GPUCAP_ROOT/tests/page/profile_reader.py" --file "$file" | sed "s/^/model=$name /" | tee "$work/profile.read"
    profile_line="$profile_line$name $(profile_key "$work/profile.read" ms) ms a step, operations fill $(profile_key "$work/profile.read" busy), \
graph $(profile_key "$work/profile.$name" step_ms) ms, $(profile_key "$work/profile.$name" tflops) TFLOP/s, mfu $(profile_key "$work/profile.$name" mfu); "
}

check_profile() {
    local profile_line=
    export PYTHONDONTWRITEBYTECODE=1
    if [ "$on_sim" = 1 ]; then
        profile_train gpt --model=gpt --layers=2 --width=32 --heads=2 --length=32 --batch=4 --steps=16 --alloc=cache --graph
    else
        [ -f "$BUILD/libtrain_cuda.so" ] || skip "no libtrain_cuda.so was built (nvcc is missing)"
        profile_train resnet50 --model=resnet50 --batch=128 --precision=bf16 --steps=40 --val-batches=1 --alloc=cache --graph
        profile_train gpt2-small --model=gpt2-small --batch=8 --precision=bf16 --steps=40 --val-batches=1 --alloc=cache --graph
    fi
    figure "${profile_line%; }"
}
