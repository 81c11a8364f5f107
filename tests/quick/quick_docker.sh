#!/usr/bin/env bash
# Runs the commands of the Docker quick start as they stand in docs/guide.md, with Docker, else with podman. Other than
# in the guide: simulated cards in place of --gpus all, and a small test program in place of the user's. The image is
# made of programs of this machine, so that nothing is downloaded. Images of podman go into the scratch folder.
#
# usage: tests/quick/quick_docker.sh BUILD CMAKE VERSION       exit status 77: neither of the two works here
set -u
build=$1 cmake=$2 version=$3
# shellcheck source-path=SCRIPTDIR source=quick_lib.sh
. "$(dirname "$0")/quick_lib.sh"
[ -e "$build/libgpucap_table.so" ] || skip "gpucap ps was built without libsmartcols"
scratch=$(mktemp -d)
base=gpucap-quick-base-$$
image=gpucap-quick-$$
engine=()
sim=(--network=none --rm -i --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 -v "$build/sim:/sim:ro"
    -v "$build/tests/integration:/programs:ro" -e LD_LIBRARY_PATH=/sim -e GPUCAP_SIM=1x32G)

clean_up() {
    exec 9>&-
    wait
    [ ${#engine[@]} = 0 ] || "${engine[@]}" rmi -f "$image" "$base" >/dev/null 2>&1
    rm -rf "$scratch"
}
trap clean_up EXIT

# make_base: what tools/Containerfile asks of a base image (glibc, a shell, tar and gzip), as a tar file.
make_base() {
    local tool path
    mkdir -p "$scratch/base/tmp" "$scratch/base/usr/local" "$scratch/base/usr/bin"
    ln -s usr/bin "$scratch/base/bin"
    for tool in sh tar gzip rm; do
        path=$(command -v "$tool") || skip "no $tool here"
        cp -L "$path" "$scratch/base/usr/bin/"
    done
    ldd "$scratch"/base/usr/bin/* "$build/gpucap" "$build/libgpucap.so" "$build"/sim/*.so.* | grep -oE '/[^ ]+ \(0x' |
        sort -u | while read -r path _; do
        case $path in
        "$build"*) ;;
        *) cp -L --parents "$path" "$scratch/base/" ;;
        esac
    done
    tar -C "$scratch/base" -cf "$scratch/base.tar" .
}

# works COMMAND...: it can run a container of the base image that sees folders of this machine.
works() {
    command -v "$1" >/dev/null || return 1
    "$@" import "$scratch/base.tar" "$base" >"$scratch/engine.log" 2>&1 &&
        "$@" run "${sim[@]}" "$base" sh -c 'test -e /sim/libcuda.so.1' >>"$scratch/engine.log" 2>&1 </dev/null
}

find_engine() {
    local podman=(podman --root "$scratch/images" --runroot "$scratch/run" --storage-driver=vfs)
    if works docker; then
        engine=(docker)
    elif works "${podman[@]}"; then
        engine=("${podman[@]}")
    elif works "${podman[@]}" --runtime runc; then
        engine=("${podman[@]}" --runtime runc)
    else
        skip "neither docker nor podman can run a container here: $(tail -n 1 "$scratch/engine.log" 2>/dev/null)"
    fi
}

# adapted COMMAND: a command of the guide as an array "line", for this machine.
adapted() {
    local word limits=(--ulimit nofile=1024:1024 --ulimit nproc=1024:1024)
    local text=${1//BASE=IMAGE/BASE=$base}
    text=${text//--gpus all/SIM}
    text=${text//linux-x86_64/linux-$(uname -m)}
    text=${text//python3 train.py/\/programs\/prog_walk}
    text=${text//\"/}
    text=${text//\$PWD\/build/$build}
    text=${text//\/run\/gpucap/$scratch/ledger}
    line=()
    for word in $text; do
        case $word in
        docker) line+=("${engine[@]}") ;;
        build) line+=(build --network=none "${limits[@]}") ;;
        gpucap) line+=("$build/gpucap") ;;
        SIM) line+=("${sim[@]}") ;;
        IMAGE) line+=("$base") ;;
        capped) line+=("$image") ;;
        tools/Containerfile) line+=("${guide%/docs/*}/$word") ;;
        build/packages) line+=("$scratch/packages") ;;
        *) line+=("$word") ;;
        esac
    done
}

# run_guide NUMBER INPUT: runs that command; what it prints is in $scratch/said.
run_guide() {
    echo "+ ${text[$1]}"
    adapted "${text[$1]}"
    printf '%b' "$2" | timeout 150 "${line[@]}" >"$scratch/said" 2>&1 || fail "status $?: ${text[$1]}
$(cat "$scratch/said")"
    sed 's/^/    /' "$scratch/said" | tail -n 4
}

# capped: the program was refused what exceeds its 8 GiB.
capped() {
    expect "train: has 4000 MiB more" "$scratch/said"
    expect "left of 8G (job's max)" "$scratch/said"
    expect "train: 6000 MiB more: out of memory" "$scratch/said"
}

make_base
find_engine
echo "with ${engine[0]}: $("${engine[@]}" --version)"
mkdir "$scratch/ledger"
(cd "$build" && "$(dirname "$cmake")/cpack" -G TGZ -B "$scratch/packages" >"$scratch/cpack.log" 2>&1) || fail "cpack: $(cat "$scratch/cpack.log")"
mapfile -t text < <(commands Docker)
[ ${#text[@]} = 6 ] || fail "the guide has ${#text[@]} commands, and this test knows 6"

run_guide 0 ''
expect "gpucap $version" "$scratch/said"
for way in 1 2 3; do
    run_guide $way 'take 4000\ntake 6000\n'
    capped
done

# Two containers, 12,000 MiB each of 20 GiB: the second one is refused, and ps outside shows the first one.
mkfifo "$scratch/input"
adapted "${text[4]}"
"${line[@]}" <"$scratch/input" >"$scratch/first" 2>&1 &
exec 9>"$scratch/input"
echo 'take 12000' >&9
for _ in $(seq 1500); do # ends a hang
    ! grep -q more "$scratch/first" || break
    sleep 0.1
done
expect 'train: has 12000 MiB more' "$scratch/first"
run_guide 4 'take 12000\n'
expect 'train: 12000 MiB more: out of memory' "$scratch/said"
run_guide 5 ''
expect ' both ' "$scratch/said"
expect '12.2 GiB' "$scratch/said"
exec 9>&-
wait
