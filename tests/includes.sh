#!/bin/sh
# Checks the direction of includes: a file may include only files of its own folder and of the folders that its layer
# allows. The layers stand below, lowest first. Modules (a header and its source) must not include each other in a circle
# either; in $strict not even with their parts. The sources of interpose/ must not call each other in a circle. Last,
# only some files speak CUresult.
#
# usage: tests/includes.sh [ROOT]
set -eu
root=${1:-$(dirname "$0")/..}
cd "$root"

# FOLDER: the folders below it that it may include from.
layers='
interpose/base:
interpose/settings: interpose/base
interpose/see: interpose/base interpose/settings
interpose/driver: interpose/base interpose/settings
interpose/account: interpose/base interpose/settings interpose/driver interpose/see
interpose/pool: interpose/base interpose/settings interpose/driver interpose/account interpose/see
interpose/share: interpose/base interpose/settings interpose/driver interpose/pool
interpose: interpose/base interpose/settings interpose/driver interpose/account interpose/pool interpose/share interpose/see
interpose/hook: interpose interpose/base interpose/settings interpose/driver interpose/account interpose/pool interpose/share interpose/see
kernels:
tools/gpucap: interpose/base interpose/settings interpose/driver interpose/account interpose/see tools/simgpu/engine
harness/base: kernels tools/gpucap
harness/memory: harness/base interpose
harness/data: kernels harness/base harness/memory
harness/model: kernels harness/base harness/memory harness/data
harness/profile: kernels harness/base harness/memory harness/model tools/gpucap
harness/train: kernels harness/base harness/memory harness/data harness/model harness/profile
harness/fleet: interpose/account interpose/driver interpose/settings tools/gpucap
harness/scenario: harness/base harness/fleet interpose/settings tools/gpucap
tools/simgpu:
tools/simgpu/engine: tools/simgpu
tools/simgpu/bridge: tools/simgpu tools/simgpu/engine
tools/simgpu/nvml: tools/simgpu/engine
tools/simgpu/cudart:
tools/simgpu/nccl:
tools/simgpu/nvjpeg:
'

wrong=$(printf '%s' "$layers" | while IFS=: read -r folder allowed; do
    [ -n "$folder" ] || continue
    find "$folder" -maxdepth 1 \( -name '*.[chS]' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' \) -exec \
        awk -v folder="$folder" -v allowed=" $folder $allowed " '
        /^#include "/ {
            split($0, part, "\"")
            included = part[2]
            if (!sub(/\/[^\/]*$/, "", included))
                print FILENAME " includes \"" included "\": write the path from the root"
            else if (!index(allowed, " " included " "))
                print FILENAME " includes from " included "/, which its layer does not allow"
        }' {} +
done)
for folder in interpose/*/ harness/*/ tools/simgpu/*/; do
    case "$layers" in
    *"
${folder%/}:"*) ;;
    *) wrong="$wrong
${folder%/} has no layer in tests/includes.sh" ;;
    esac
done

# Folders whose modules can be read one after the other, each from its header and those before it.
strict='interpose/base interpose/settings interpose/driver interpose/pool interpose interpose/hook'

# edges FILE...: "A B" for each module A that includes B. A_PART is a part of A, which may include it and be included by
# it, except in $strict.
edges() {
    awk -v strict=" $(echo "$strict" | tr -s ' \n' '  ') " '
        FNR == 1 {
            module = FILENAME
            sub(/\.[ch]$/, "", module)
            folder = module
            sub(/\/[^\/]*$/, "", folder)
            has_parts = !index(strict, " " folder " ")
        }
        /^#include ".*\.h"/ {
            split($0, part, "\"")
            included = part[2]
            sub(/\.h$/, "", included)
            if (included != module && !(has_parts && index(included, module "_") == 1))
                print module, included
        }' "$@"
}
files='harness/*/*.[ch] tools/simgpu/engine/*.[ch] tools/gpucap/*.[ch] interpose/account/*.[ch] interpose/see/*.[ch]
    interpose/share/*.[ch]'
for folder in $strict; do
    files="$files $folder/*.[ch]"
done
# shellcheck disable=SC2086 # patterns
circles=$(edges $files | tsort 2>&1 >/dev/null) || true
[ -z "$circles" ] || wrong="$wrong
modules that include each other in a circle:
$circles"

# A header may declare what several sources define (ledger.h, ipc.h), so circles of calls are looked for in the sources:
# "A B" for each source A that calls a function which B defines. Not the hooks: they and the table of them need each other.
calls=$(find interpose -name '*.c' ! -path 'interpose/hook/*' -exec awk '
    { sub(/\/\*.*/, ""); sub(/^__attribute__\(\(.*\)\) /, "") }
    /^ \*/ || /^#/ { next }
    /^[a-z].*[ *][a-z][a-z0-9_]*\(/ {
        match($0, /[a-z][a-z0-9_]*\(/)
        name = substr($0, RSTART, RLENGTH)
        if (/^static/)
            own[FILENAME, name]
        else if (!/;$/)
            defined_in[name] = FILENAME
    }
    {
        while (match($0, /[a-z][a-z0-9_]*\(/)) {
            called[FILENAME, substr($0, RSTART, RLENGTH)]
            $0 = substr($0, RSTART + RLENGTH)
        }
    }
    END {
        for (call in called) {
            split(call, part, SUBSEP)
            if (part[2] in defined_in && defined_in[part[2]] != part[1] && !(call in own))
                print part[1], defined_in[part[2]]
        }
    }' {} + | sort -u | tsort 2>&1 >/dev/null) || true
[ -z "$calls" ] || wrong="$wrong
sources that call each other in a circle:
$calls"

# The driver's answers: hooks and routes give them to the program, fence and capture pass them on for a strict free, vmm
# turns them into an errno. Other modules only compare with CUDA_SUCCESS where they call the driver.
speaks=$(grep -lE 'CUresult|CUDA_ERROR_' interpose/*.[ch] interpose/*/*.[ch] |
    grep -vE '^interpose/(hook/|driver/(driver|newer)\.|route|pool/(fence|capture)\.|pool/vmm\.c)' || true)
[ -z "$speaks" ] || wrong="$wrong
files that speak CUresult and must not:
$speaks"

if [ -n "$wrong" ]; then
    echo "$wrong" >&2
    exit 1
fi
