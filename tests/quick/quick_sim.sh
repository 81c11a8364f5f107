#!/usr/bin/env bash
# Runs the quick starts of docs/guide.md and README.md that need no framework on simulated cards: plain CUDA, whose
# output must be the one that is printed there, recording, several programs on one card, and one budget for two runs.
#
# usage: tests/quick/quick_sim.sh BUILD CC CUDA_INCLUDE
set -u
build=$1 cc=$2 cuda=$3
# shellcheck source-path=SCRIPTDIR source=quick_lib.sh
. "$(dirname "$0")/quick_lib.sh"
[ -e "$build/libgpucap_table.so" ] || skip "gpucap ps was built without libsmartcols"
readme=${guide%/docs/*}/README.md
scratch=$(mktemp -d)
trap 'exec 8>&- 9>&-; kill $(jobs -p) 2>/dev/null; wait; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
ulimit -S -n 1024 # as on most systems
ln -s "$build" build
mkdir ledger
export PATH=$build:$PATH GPUCAP_SIM_ID=quick$$ GPUCAP_LEDGER=$scratch/ledger

# The program is the guide's text, and so is the line that compiles it.
plain_cuda() {
    local line
    awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$guide" >hog.c
    line=$(sed -n 's/.*headers are installed: gcc \(.*\) \*\//\1/p' hog.c)
    # shellcheck disable=SC2086 # a list of arguments
    "$cc" ${line//\/usr\/local\/cuda\/include/$cuda} || fail "gcc $line"
}

# session FILE: runs each "$ gpucap run ... ./hog" of the file and compares what it prints with the lines below it. (The
# order is not compared: the program's output is held back by stdio where stdout is no terminal.)
session() {
    local command sessions=0
    grep -E '^\$ gpucap run .*/hog$' "$1" >sessions
    while read -r _ command; do
        echo "+ $command"
        awk -v command="\$ $command" '$0 == command { inside = 1; next } /^(```|)$/ { inside = 0 } inside' "$1" | sort >expected
        $command 2>&1 </dev/null | sort >said
        diff expected said >difference || fail "$(basename "$1"), $command: < is what it says, > what was printed
$(cat difference)"
        sessions=$((sessions + 1))
    done <sessions
    [ "$sessions" = "$2" ] || fail "$(basename "$1") has $sessions sessions with ./hog, and this test knows $2"
}

# recording: README's three lines after "Why did it run out?".
recording() {
    local command
    sed -n '/^gpucap run --record/,/^```/s/  *#.*//p' "$readme" | grep . >lines
    while read -r command; do
        echo "+ $command"
        command=${command/run --record/run --sim=1x16G --max=8G --record}
        # shellcheck disable=SC2086 # run-*.gpucap is a pattern
        ${command/python3 train.py/.\/hog} >said 2>&1 </dev/null || fail "status $?: $(cat said)"
        ! [[ $command = *' why '* ]] || expect 'asked        256 MiB' said
    done <lines
    [ "$(wc -l <lines)" = 3 ] || fail "README has $(wc -l <lines) lines about recordings, and this test knows 3"
    expect '<html' why.html
}

# fleets: fewer steps than in the guide, and not the line for a GPU.
fleets() {
    local command
    commands 'Several programs on one card' | grep -e --sim >lines
    while read -r command; do
        echo "+ $command"
        ${command//--steps=10/--steps=1} >said 2>&1 </dev/null || fail "status $?: $(cat said)"
        expect 'end=ok' said
        ! grep -q 'end=[^o]' said || fail "$(cat said)"
    done <lines
    [ "$(wc -l <lines)" = 2 ] || fail "the guide has $(wc -l <lines) lines of fleet on simgpu, and this test knows 2"
}

# each: the guide's line with two limits; the smaller one refuses.
each() {
    local command
    command=$(commands 'One budget for several processes' | grep -e --each) || fail "the guide has no line with --each"
    echo "+ $command"
    printf 'take 3000\ntake 3000\n' | LD_LIBRARY_PATH=$build/sim GPUCAP_SIM=1x16G ${command/.\/serve/$build\/tests\/integration\/prog_walk} >said 2>&1
    expect 'train: has 3000 MiB more' said
    expect 'left of 5G' said
}

# start NAME COMMAND: one of the two runs; its program takes what is written to the pipe NAME.in.
start() {
    echo "+ $2 &"
    mkfifo "$1.in"
    ${2/.\/train $1/$build\/tests\/integration\/prog_walk} <"$1.in" >"$1.out" 2>&1 &
}

# until_has TEXT COMMAND...: waits until what the command prints has it.
until_has() {
    local text=$1
    shift
    for _ in $(seq 1500); do # ends a hang
        "$@" >said 2>&1
        ! grep -qF -- "$text" said || return 0
        sleep 0.1
    done
    fail "no '$text' in what '$*' prints: $(cat said)"
}

# one_budget: 11,000 MiB each of 20 GiB. The second run waits for the first until the limit is raised.
one_budget() {
    local lines
    export LD_LIBRARY_PATH=$build/sim GPUCAP_SIM=1x32G
    mapfile -t lines < <(commands 'One budget for several processes' | grep -E 'night|ps' | sed 's/ &$//')
    [ ${#lines[@]} = 4 ] || fail "the guide has ${#lines[@]} lines of the group night, and this test knows 4"
    start a "${lines[0]}"
    exec 8>a.in
    echo 'take 11000' >&8
    until_has 'has 11000 MiB more' cat a.out
    start b "${lines[1]/--wait=60s/--wait=600s}" # however long it takes to come to the last line
    exec 9>b.in
    echo 'take 11000' >&9
    echo "+ ${lines[2]}"
    # shellcheck disable=SC2086 # words
    until_has 'waiting' ${lines[2]}
    [ "$(grep -c ' night ' said)" = 2 ] || fail "$(cat said)"
    echo "+ ${lines[3]}"
    ${lines[3]} >said || fail "status $?: ${lines[3]}"
    until_has 'has 11000 MiB more' cat b.out
}

# frameworks: their lines are those that tests/gpu/quick/quick_starts.sh runs on a GPU.
frameworks() {
    local name lines
    lines=$(for name in PyTorch JAX CuPy; do commands "$name"; done)
    [ "$lines" = 'gpucap run --max=8G -- python3 train.py
PYTORCH_NO_CUDA_MEMORY_CACHING=1 gpucap run --max=8G --free=deferred -- python3 train.py
gpucap run --max=8G -- python3 train.py
XLA_PYTHON_CLIENT_MEM_FRACTION=.90 gpucap run --max=8G -- python3 train.py
gpucap run --max=8G -- python3 program.py' ] || fail "the guide's lines have changed; tests/gpu/quick/quick_starts.sh must run the new ones:
$lines"
}

frameworks
plain_cuda
session "$readme" 2
session "$guide" 1
recording
fleets
each
one_budget
