#!/bin/sh
# Checks the direction of includes: a file may include only files of its own folder and of the folders that its layer
# allows. The layers stand below, lowest first. Modules (a header and its source) must not include each other in a circle
# either, in the folders where that has ended; in $strict not even with their parts, and what a header there declares
# is defined in its own source. Last, only some files speak CUresult.
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
    for file in "$folder"/*.[chS] "$folder"/*.def; do
        [ -f "$file" ] || continue
        sed -n 's/^#include "\([^"]*\)\/[^\/"]*".*/\1/p' "$file" | sort -u | while read -r included; do
            case " $folder $allowed " in
            *" $included "*) ;;
            *) echo "$file includes from $included/, which its layer does not allow" ;;
            esac
        done
        sed -n 's/^#include "\([^\/"]*\)".*/\1/p' "$file" | while read -r bare; do
            echo "$file includes \"$bare\": write the path from the root"
        done
    done
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
    for file in "$@"; do
        module=${file%.*}
        case " $strict " in
        *" ${file%/*} "*) parts='' ;;
        *) parts="${module}_*" ;;
        esac
        sed -n 's/^#include "\(.*\)\.h".*/\1/p' "$file" | while read -r included; do
            # shellcheck disable=SC2254 # a pattern
            case $included in
            "$module" | $parts) ;;
            *) echo "$module $included" ;;
            esac
        done
    done
}
# Not yet: interpose/see (owner and stacks), interpose/share (ipc_source and ipc_thread).
files='harness/*/*.[ch] tools/simgpu/engine/*.[ch] interpose/account/*.[ch]'
for folder in $strict; do
    files="$files $folder/*.[ch]"
done
# shellcheck disable=SC2086 # patterns
circles=$(edges $files | tsort 2>&1 >/dev/null) || true
[ -z "$circles" ] || wrong="$wrong
modules that include each other in a circle:
$circles"

# What a header of the pool declares is defined in its own source: otherwise a circle of calls would not show in includes.
elsewhere=$(for header in interpose/pool/*.h; do
    sed -n 's/^[a-z][a-z0-9_ ]*[ *]\([a-z][a-z0-9_]*\)(.*/\1/p' "$header" | while read -r name; do
        grep -qE "^(static inline )?[a-z][a-z0-9_ ]*[ *]$name\(" "${header%.h}.c" 2>/dev/null ||
            grep -qE "^static inline [a-z0-9_ ]*[ *]$name\(" "$header" ||
            echo "$header declares $name(), which ${header%.h}.c does not define"
    done
done)
[ -z "$elsewhere" ] || wrong="$wrong
$elsewhere"

# The driver's answers: hooks and routes give them to the program, fence and capture pass them on for a strict free, vmm
# and device turn them into an errno. Other modules only compare with CUDA_SUCCESS where they call the driver.
speaks=$(grep -lE 'CUresult|CUDA_ERROR_' interpose/*.[ch] interpose/*/*.[ch] |
    grep -vE '^interpose/(hook/|driver/driver\.|route|pool/(fence|capture)\.|pool/vmm\.c|account/device\.c)' || true)
[ -z "$speaks" ] || wrong="$wrong
files that speak CUresult and must not:
$speaks"

if [ -n "$wrong" ]; then
    echo "$wrong" >&2
    exit 1
fi
