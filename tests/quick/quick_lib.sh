# What the tests of quick starts share: the commands as they stand in docs/guide.md. Sourced; needs bash.
# shellcheck shell=bash

# shellcheck disable=SC2086 # a list of names
unset ${!GPUCAP_@}
guide=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/docs/guide.md

# blocks NAME: the code blocks of one section of the guide.
blocks() {
    awk -v name="$1" '/^##/ { inside = 0 } $0 ~ "^###? " name "$" { inside = 1 }
        inside && /^```/ { block = !block; next }
        inside && block' "$guide"
}

# commands NAME: its commands, one in a line, without comments and prompts.
commands() {
    blocks "$1" | sed -e ':a; /\\$/ { N; s/ *\\\n */ /; ba }' -e 's/^\$ //; s/  *#.*//' | grep -E '^([A-Z_]+=[^ ]+ )?(docker|gpucap|build/fleet) '
}

fail() {
    echo "FAIL $*" >&2
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 77
}

# expect TEXT FILE: the file has a line with TEXT.
expect() {
    grep -qF -- "$1" "$2" || fail "no '$1' in what was printed:
$(cat "$2")"
}
