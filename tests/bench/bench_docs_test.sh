#!/bin/sh
# bench_docs_test.sh BENCH_DOCS FILE: a table takes the place of the one before, the rest of the file stays.
set -eu
program=$1 file=$2

put() {
    "$program" --key=pairs --title=Pairs --command="bench_pair" --device="a card" --pivot=engine --value=ns "$file"
}
printf '# Before\n\n<!-- begin other -->\nkept\n<!-- end other -->\n' >"$file"
printf 'noise\npair engine=a bytes=1 ns=7\npair engine=b bytes=1 ns=8\npair engine=a bytes=2 ns=9\n' | put
grep -qx '| bytes | a ns | b ns |' "$file"
grep -qx '| 1 | 7 | 8 |' "$file"
grep -qx '| 2 | 9 | - |' "$file"
printf 'pair engine=a bytes=1 ns=5\n' | put
grep -qx '| 1 | 5 |' "$file"
if grep -q '| 7 |' "$file"; then exit 1; fi
grep -qx 'kept' "$file"
# Nothing to say: nothing is changed.
cp "$file" "$file.same"
if printf 'noise\n' | put 2>/dev/null; then exit 1; fi
cmp "$file" "$file.same"
