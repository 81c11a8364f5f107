#!/usr/bin/env bash
# usage: programs_named.sh BUILD
# Checks that gpu-check knows every scenario of the programs that it runs on a card (PROGRAM_RUNS), or knows that it
# cannot run there: otherwise a new one would be noticed only on a GPU.
set -eu
export BUILD=$1 LD_LIBRARY_PATH=$1/sim
# shellcheck source=/dev/null
. "$(dirname "$0")/../tools/gpu-check.d/programs.sh"
unnamed=$(unnamed_scenarios)
echo "$unnamed"
[ -z "$unnamed" ]
