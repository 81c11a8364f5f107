# Helpers shared by tools/setup, tools/test and tools/demo. Sourced, never run; the caller has set -eu.
# Progress and error messages go to stderr, so that stdout has only the requested output.
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
    sed -n -e '2,/^[^#]/{/^# shellcheck/d; /^#/!q; s/^# \{0,1\}//; p}' "$1" | fill_lines
}

# Brings text to lines of at most 80 columns. A line that is longer is joined with the next one if that begins in the same
# column; what an option does stays in its column.
fill_lines() {
    awk '
        function flush(    words, count, i, line) {
            if (!pending) return
            count = split(text, words, " ")
            line = start
            for (i = 1; i <= count; i++) {
                if (length(line) > hang && length(line) + 1 + length(words[i]) > 80) { print line; line = "" }
                if (length(line) <= hang) line = sprintf("%-" hang "s", line) words[i]
                else line = line " " words[i]
            }
            print line
            pending = 0
        }
        {
            match($0, /^ */); indent = RLENGTH
            if (pending && joins && indent == hang && length($0) > indent && substr($0, indent + 1, 1) != "-") {
                text = text " " substr($0, indent + 1)
            } else {
                flush()
                hang = indent
                if (match($0, /^ *-[^ ]+( [^ ]+)?  +/) || match($0, /^ *- /) || match($0, /^usage: [^ ]+ /)) hang = RLENGTH
                start = substr($0, 1, hang); text = substr($0, hang + 1); pending = 1
            }
            joins = length($0) > 80
        }
        END { flush() }'
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
