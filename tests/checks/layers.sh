#!/usr/bin/env bash
# Includes point down the house only: base ← tensor ← collectives ← mixedprec ← stages and
# base ← scheduler ← stages; and no header of ours includes another library's.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bad=0

check() {
    local folder=$1 allowed=$2 hits
    hits=$(git ls-files -co --exclude-standard -- "$folder/*.c" "$folder/*.h" |
        xargs grep -nE '^#include "(base|tensor|collectives|mixedprec|scheduler|stages|tests)/' |
        grep -vE "#include \"($allowed)/")
    if [ -n "$hits" ]; then
        echo "layers: $folder may include only: $allowed"
        echo "$hits"
        bad=1
    fi
}

check base 'base'
check tensor 'base|tensor'
check scheduler 'base|scheduler'
check collectives 'base|tensor|collectives'
check mixedprec 'base|tensor|collectives|mixedprec'
check stages 'base|tensor|collectives|mixedprec|scheduler|stages'

foreign=$(git ls-files -co --exclude-standard -- '*.h' |
    xargs grep -nE '^#include <(zmq|msgpack|jansson|libfyaml|xxhash|oneapi|dnnl|cuda|cublas|nccl|omp)')
if [ -n "$foreign" ]; then
    echo "layers: a header of ours includes another library's:"
    echo "$foreign"
    bad=1
fi
exit "$bad"
