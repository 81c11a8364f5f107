#!/bin/sh
# Checks that every program of the project has a --help, in lines of at most 80 columns.
#
# usage: tests/help.sh BUILD_FOLDER
set -u
build=$1
tools=$(dirname "$0")/../tools
failed=0
texts=0

# check NAME COMMAND...: what the command prints is a text of at most 80 columns.
check() {
    name=$1
    shift
    if ! text=$("$@" 2>&1 </dev/null); then
        echo "$name: ends with an error"
        failed=1
    fi
    if [ -z "$text" ]; then
        echo "$name: prints nothing"
        failed=1
    fi
    if printf '%s\n' "$text" | grep -n '.\{81\}' | sed "s|^|$name, line |" | grep .; then
        failed=1
    fi
    texts=$((texts + 1))
}

for program in train fleet scenarios ballast gpucap; do
    check "$program --help" "$build/$program" --help
done
for command in $("$build/gpucap" help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do
    check "gpucap help $command" "$build/gpucap" help "$command"
    check "gpucap $command --help" "$build/gpucap" "$command" --help
done
for script in "$tools"/*; do
    if [ -x "$script" ] && [ -f "$script" ]; then
        check "tools/$(basename "$script") --help" "$script" --help
    fi
done
for program in train fleet scenarios; do
    if ! "$build/$program" --help 2>&1 >/dev/full | grep -q "^$program: cannot write to stdout"; then
        echo "$program --help: does not say that it cannot write"
        failed=1
    fi
done
if [ "$texts" -lt 30 ]; then
    echo "only $texts texts were found"
    failed=1
fi
exit "$failed"
