#!/bin/sh
# The weights and batches that train writes have PyTorch's layout: plain Python computes the same loss from them.
#
# usage: harness_forward.sh (with GPUCAP_BUILD set, as ctest does)
set -eu
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || {
    echo "python3 (3.9 or later) is not there"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GPUCAP_SIM=1x512M GPUCAP_SIM_ID=forward-$$ PYTHONDONTWRITEBYTECODE=1 \
    python3 "$(dirname "$0")/../../gpu/py/same_forward.py" --train="$GPUCAP_BUILD/train" --work="$work" \
    --library-path="$GPUCAP_BUILD/sim"
