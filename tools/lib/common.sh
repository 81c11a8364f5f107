# Helpers shared by tools/setup, tools/test and tools/demo. Sourced, never run; the caller has set -eu.
# Progress and complaints go to stderr, so that stdout holds only what a command was asked for.
# shellcheck shell=bash

# shellcheck disable=SC2034 # for the scripts that source this file
GPUCAP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() {
    printf '%s\n' "$*" >&2
}

# A step that the reader can follow: seconds since the start, then what is being done.
step() {
    printf '[%4ds] %s\n' "$SECONDS" "$*" >&2
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Prints the comment block at the top of a script, without its first line and the leading '# '.
print_help() {
    sed -n -e '2,/^[^#]/{/^#/!q; s/^# \{0,1\}//; p}' "$1"
}

# As many jobs as there are processors; the tests themselves share them (see tools/test).
job_count() {
    nproc 2>/dev/null || echo 2
}

# Where cuda.h is, by the same rules as cmake/GpucapDeps.cmake; empty when there is none.
cuda_include_dir() {
    local dir
    for dir in "${CUDA_HOME:-}/include" "${CUDA_PATH:-}/include" /usr/local/cuda/include /usr/include; do
        if [ -f "$dir/cuda.h" ]; then
            printf '%s\n' "$dir"
            return 0
        fi
    done
    return 1
}
