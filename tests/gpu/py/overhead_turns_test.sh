#!/bin/sh
# overhead_turns_test.sh FOLDER: with a stand-in for overhead.py whose times are made up, overhead_turns.py finds what each
# run costs, although every other turn is disturbed, the very first is long, each begins slowly and a process that goes twice in a row is faster. Exits
# with 77 without python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || exit 77
rm -rf "$1"
mkdir -p "$1"
cp "$here/overhead_turns.py" "$1"
cat >"$1/overhead.py" <<'PYTHON'
import os
import sys

log = os.path.join(os.path.dirname(os.path.abspath(__file__)), "order")
for turn, line in enumerate(sys.stdin):
    with open(log, "a+") as order:
        order.seek(0)
        before = order.read().split()
        again = before[-1:] == [str(os.getpid())]
        order.write(f"{os.getpid()}\n" if turn else "")
    ms = float(os.environ["FACTOR"]) * (3 if turn % 2 else 1) * (0.5 if again else 1) * (1 if before else 100)
    print(100, *[ms] * (int(line) - 1), flush=True)
print("peak", 4096)
PYTHON
cd "$1"
run() {
    PYTHONDONTWRITEBYTECODE=1 python3 overhead_turns.py --steps=4 --skip=1 --warm=1 "$@" any first,FACTOR=2 dear,FACTOR=2.2 cheap,FACTOR=1
}
run --each=2 --turns=50 >lines
cat lines
grep -q '^program=any run=first processes=2 steps=300 median_ms=4.0000 ratio=1.0000 error=0.0000 total=1.0000 quiet=1.0000 ' lines
grep -q '^program=any run=dear .* ratio=1.1000 error=0.0000 total=1.1000 quiet=1.1000 fastest_ms=4.4000 slowest_ms=4.4000 longest_ms=6.6 turn=49 dearest=1:1.8,3:1.8,.* held=4096$' lines
grep -q '^program=any run=cheap .* ratio=0.5000 error=0.0000 total=0.5000 quiet=0.5000 ' lines
[ "$(wc -l <order)" -eq 306 ]
[ "$(uniq order | wc -l)" -eq 306 ] # none went twice in a row
[ "$(awk 'NR % 6 == 1' order | sort -u | wc -l)" -eq 6 ] # each was the first of a turn at some time
run --turns=1000000 --seconds=0.1 >lines
grep -q 'run=dear .* ratio=1.1000 ' lines
if run --turns=1 2>/dev/null; then exit 1; fi
if run --skip=4 2>/dev/null; then exit 1; fi
if PYTHONDONTWRITEBYTECODE=1 python3 overhead_turns.py --turns=4 any broken >/dev/null 2>&1; then exit 1; fi # no FACTOR: it breaks off
