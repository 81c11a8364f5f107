#!/bin/sh
# heap_rename.sh NM OBJCOPY LIBRARY.a OUT.a: a private copy of jemalloc for interpose/pool/heap.c.
#
# Every name that it defines without its je_ prefix (malloc, free, mallocx, ...) gets the prefix heap_je_, so that it
# replaces no malloc of the program. What it would read of the host's settings, or do at a fork, goes to functions of heap.c that do
# nothing.
set -eu
nm=$1 objcopy=$2 library=$3 out=$4

{
    "$nm" -g --defined-only "$library" 2>/dev/null | awk 'NF == 3 && $3 !~ /^(je_|_Z|DW\.)/ { print $3 }'
    printf '%s\n' secure_getenv readlink dlsym pthread_atfork
} | sort -u | awk '{ print $1, "heap_je_" $1 }' >"$out.names"
"$objcopy" --redefine-syms="$out.names" --weaken-symbol=heap_je_malloc_conf "$library" "$out"
