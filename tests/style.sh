#!/bin/sh
# Checks rules of CONTRIBUTING.md ("Write") that no other tool checks: sizeof has parentheses, no two files have one
# name, the files that documents and comments name exist, and, with BUILD, the global names of simgpu begin with its
# prefixes.
#
# usage: tests/style.sh [--fix] [ROOT [BUILD]]     --fix writes the parentheses of sizeof (then run clang-format -i)
set -eu
fix=
if [ "${1:-}" = --fix ]; then
    fix=1
    shift
fi
root=${1:-$(dirname "$0")/..}
build=${2:-}
wrong=

sources() {
    find "$root/interpose" "$root/harness" "$root/kernels" "$root/tools" "$root/tests" -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \)
}

bare='\bsizeof +([*&]*[A-Za-z_][A-Za-z_0-9]*(\[[^][]*\]|\.[A-Za-z_0-9]+|->[A-Za-z_0-9]+)*|"[^"]*")'
if [ -n "$fix" ]; then
    sources | xargs grep -lE "$bare" | xargs -r sed -i -E "s/$bare/sizeof(\1)/g"
fi
found=$(sources | xargs grep -nE '\bsizeof +') || true
[ -z "$found" ] || wrong="sizeof without parentheses (tests/style.sh --fix writes them):
$found"

# Corpora of fuzz targets and golden files are data; each folder has its own CMakeLists.txt.
twice=$({
    sources
    find "$root/interpose" "$root/harness" "$root/kernels" "$root/tools" "$root/tests" -type f \
        \( -name '*.sh' -o -name '*.py' -o -name '*.def' -o -name '*.cmake' \)
} | sed 's/.*\///' | sort | uniq -d)
[ -z "$twice" ] || wrong="$wrong
files of one name:
$twice"

# Headers of others, fields of structures, and files of examples.
foreign='(cuda|cudaTypedefs|cuda_runtime_api|cudnn|cublasLt|jemalloc|mpi|nvToolsExt|nvtxTypes|stdio|zstd|transformer)\.h|(window|hog|[A-Z]+)\.cu?|unjudged\.def'
named=$({
    find "$root" -maxdepth 2 -name '*.md' ! -path '*/third_party/*' ! -path '*/build*' -exec cat {} +
    find "$root/docs/decisions" -name '*.md' -exec cat {} +
    sources | xargs grep -hoE '(^ \*|/\*).*' | sed 's/\*\/.*//'
} | grep -oE '[A-Za-z0-9_-]+\.(c|h|cu|cuh|sh|def|md)\b' | grep -vxE "$foreign" | sort -u)
there=$(find "$root" \( -path "$root/build*" -o -name third_party -o -name .git \) -prune -o -type f -print | sed 's/.*\///')
gone=$(echo "$named" | grep -vxF "$there") || true
[ -z "$gone" ] || wrong="$wrong
files that documents or comments name, and that do not exist:
$gone"

# What the simulated libraries export has NVIDIA's names; simgpu.h is for tests.
exported='cu[A-Z]|_?_?cuda[A-Z]|nvml[A-Z]|nvjpeg[A-Z]|nccl[A-Z]|simgpu_'
# objects: those whose source still exists; an old build folder may hold others.
objects() {
    find "$build/tools/simgpu" -name '*.c.o' | while read -r object; do
        source=$(echo "${object#"$build"/}" | sed 's/CMakeFiles\/[^\/]*\///; s/\.o$//')
        [ ! -f "$root/$source" ] || echo "$object"
    done
}
if [ -n "$build" ]; then
    names=$(objects | xargs -r nm -g --defined-only | sed -n 's/^[0-9a-f]* [A-Z] //p' |
        grep -vE "^(sim_|cudart_|$exported)|^_.*[at]san" | sort -u) || true
    [ -z "$names" ] || wrong="$wrong
global names of simgpu without its prefix:
$names"
fi

if [ -n "$wrong" ]; then
    printf '%s\n' "$wrong" >&2
    exit 1
fi
