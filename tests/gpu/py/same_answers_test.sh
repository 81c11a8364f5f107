#!/bin/sh
# same_answers_test.sh FOLDER: same_answers.py finds an answer that differs under the library, one that is missing, another
# exit status and a part that does not end, and does not compare what varies natively. The programs are stand-ins, and so
# is the library. Exits with 77 without python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || exit 77
rm -rf "$1"
mkdir -p "$1"
cd "$1"
cat >parts.py <<'PYTHON'
import os
import sys
import time

wrapped = "GPUCAP_MAX" in os.environ
deferred = os.environ.get("GPUCAP_FREE") == "deferred"
if sys.argv[1] == "--list":
    print("\n".join(os.environ["PARTS"].split()))
elif sys.argv[1] == "same":
    print("one 1\ntwo 2 3")
elif sys.argv[1] == "varies":
    print("one", os.getpid())
elif sys.argv[1] == "fails":
    sys.exit("natively too")
elif sys.argv[1] == "other":
    print("one", "wrong" if wrapped else "right")
elif sys.argv[1] == "missing":
    print("one 1\ntwo 2" if not deferred else "one 1")
elif sys.argv[1] == "status":
    sys.exit(3 if deferred else 0)
elif sys.argv[1] == "hangs" and wrapped:
    time.sleep(1000)
PYTHON
: >library.so
run() {
    LD_PRELOAD='' PYTHONDONTWRITEBYTECODE=1 python3 "$here/same_answers.py" "$PWD/library.so" --jobs=4 parts.py "$@" >lines 2>errors
}
PARTS='same varies fails' run
cat lines
grep -qx 'parts=3 same=10 different=0 vary=2 late=0' lines
grep -q 'natively too' errors
if PARTS='other missing status' run; then exit 1; fi
cat lines
grep -qx 'DIFFERENT one: natively right, strict wrong' lines
grep -qx 'DIFFERENT one: natively right, deferred wrong' lines
grep -qx 'DIFFERENT two: natively 2, deferred None' lines
grep -qx 'DIFFERENT status.status: natively 0, deferred 3' lines
grep -qx 'parts=3 same=8 different=4 vary=0 late=0' lines
if PARTS='hangs' run --part-seconds=4; then exit 1; fi
grep -qx 'DIFFERENT hangs.status: natively 0, strict did not end' lines
if PARTS='hangs' run --seconds=0; then exit 1; fi
grep -qx 'no time for hangs' lines
