#!/bin/sh
# Checks the direction of includes: a file may include only files of its own folder and of the folders that its layer
# allows. The layers stand below, lowest first.
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
interpose/account: interpose/base interpose/settings interpose/driver
interpose/pool: interpose/base interpose/settings interpose/driver interpose/account interpose/see
interpose/share: interpose/base interpose/settings interpose/driver interpose/pool
interpose: interpose/base interpose/settings interpose/driver interpose/account interpose/pool interpose/share interpose/see
interpose/hook: interpose interpose/base interpose/settings interpose/driver interpose/account interpose/pool interpose/share interpose/see
tools/simgpu:
tools/simgpu/engine: tools/simgpu
tools/simgpu/bridge: tools/simgpu tools/simgpu/engine
tools/simgpu/nvml: tools/simgpu/engine
tools/simgpu/cudart:
'

wrong=$(printf '%s' "$layers" | while IFS=: read -r folder allowed; do
    [ -n "$folder" ] || continue
    for file in "$folder"/*.[chS] "$folder"/*.def; do
        [ -f "$file" ] || continue
        sed -n 's/^#include "\(.*\)\/[^\/]*"$/\1/p' "$file" | sort -u | while read -r included; do
            case " $folder $allowed " in
            *" $included "*) ;;
            *) echo "$file includes from $included/, which its layer does not allow" ;;
            esac
        done
        sed -n 's/^#include "\([^\/]*\)"$/\1/p' "$file" | while read -r bare; do
            echo "$file includes \"$bare\": write the path from the root"
        done
    done
done)
for folder in interpose/*/ tools/simgpu/*/; do
    case "$layers" in
    *"
${folder%/}:"*) ;;
    *) wrong="$wrong
${folder%/} has no layer in tests/includes.sh" ;;
    esac
done

# The modules of simgpu's engine (NAME.c and NAME.h are one) include each other in no circle.
engine=tools/simgpu/engine
circle=$(for file in "$engine"/*.[ch]; do
    module=$(basename "${file%.*}")
    sed -n "s|^#include \"$engine/\(.*\)\.h\"\$|$module \1|p" "$file"
done | tsort 2>&1 >/dev/null) || wrong="$wrong
$engine has a circle of includes:
$circle"
if [ -n "$wrong" ]; then
    echo "$wrong" >&2
    exit 1
fi
