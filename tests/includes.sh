#!/bin/sh
# Checks the direction of includes: a file may include only files of its own folder and of the folders that its layer
# allows. The layers stand below, lowest first. Modules of harness/ (a header and its source) must not include each other
# in a circle either.
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

# "A B" for each module A that includes B. A_PART is a part of A, which may include it and be included by it.
edges() {
    for file in harness/*/*.[ch] tools/simgpu/engine/*.[ch]; do
        module=${file%.*}
        sed -n 's/^#include "\(.*\)\.h".*/\1/p' "$file" | while read -r included; do
            case $included in
            "$module" | "$module"_*) ;;
            *) echo "$module $included" ;;
            esac
        done
    done
}
circles=$(edges | tsort 2>&1 >/dev/null) || true
[ -z "$circles" ] || wrong="$wrong
modules that include each other in a circle:
$circles"

if [ -n "$wrong" ]; then
    echo "$wrong" >&2
    exit 1
fi
