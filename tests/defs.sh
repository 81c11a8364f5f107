#!/bin/sh
# Every entry point of the CUDA headers is in one of our lists, and tools/update-defs would notice if one were not.
#
# usage: tests/defs.sh HEADERS
set -eu
headers=$1
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/tools/update-defs" --check --headers "$headers"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/interpose" "$copy/tools/lib" "$copy/headers"
cp "$headers"/cuda*.h "$copy/headers/"
cp "$root/tools/lib/common.sh" "$copy/tools/lib/"
cp "$root/tools/update-defs" "$copy/tools/"
fresh_lists() {
    cp -r "$root/interpose/driver" "$root/interpose/hook" "$copy/interpose/"
}

# expect STATUS TEXT: the check of the copy ends with this status and prints this.
expect() {
    status=0
    said=$("$copy/tools/update-defs" --check --headers "$copy/headers" 2>&1) || status=$?
    if [ "$status" -ne "$1" ] || ! printf '%s\n' "$said" | grep -q "^$2"; then
        printf 'expected status %s and "%s", got %s and:\n%s\n' "$1" "$2" "$status" "$said" >&2
        exit 1
    fi
}

fresh_lists
sed -i '/^HOOK(cuMemAllocManaged,/d' "$copy/interpose/driver/hooks.def"
expect 1 'cuMemAllocManaged: new'
"$copy/tools/update-defs" --headers "$copy/headers" >/dev/null 2>&1
grep -q '^CUresult cuMemAllocManaged(' "$copy/interpose/driver/unjudged.def"

fresh_lists
sed -i 's/^QUIET(cuMemAddressReserve).*/QUIET(cuMemAddressReserve)/' "$copy/interpose/hook/quiet.def"
expect 1 'cuMemAddressReserve: has no reason'

fresh_lists
echo 'HOOK(cuGone, PFN_cuGone)' >>"$copy/interpose/driver/hooks.def"
expect 0 'cuGone: a row of ours'

fresh_lists
echo 'CUresult CUDAAPI cuMemAllocTwice(CUdeviceptr *address);' >>"$copy/headers/cuda.h"
expect 1 'cuMemAllocTwice: new'
