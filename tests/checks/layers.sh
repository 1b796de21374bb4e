#!/usr/bin/env bash
# Includes point down the house only: base ← tensor ← collectives ← mixedprec ← stages and
# base ← scheduler ← stages; and no header of ours includes another library's.
set -u
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
bad=0

# Our own includes are written from the root, so that their first folder tells their layer.
check() {
    local folder=$1 allowed=$2 files
    files=$(tree_files "$folder/*.c" "$folder/*.h" ":(glob)$folder/**/*.cu" ":(glob)$folder/**/*.cuh") || exit 1
    if echo "$files" | xargs grep -nE '^ *# *include *("|<(base|tensor|collectives|mixedprec|scheduler|stages|tests)/)' \
        /dev/null | grep -vE "include \"($allowed)/[^.]"; then
        echo "layers: $folder may include only: $allowed"
        bad=1
    fi
}

check base 'base'
check tensor 'base|tensor'
check scheduler 'base|scheduler'
check collectives 'base|tensor|collectives'
check mixedprec 'base|tensor|collectives|mixedprec'
check stages 'base|tensor|collectives|mixedprec|scheduler|stages'

headers=$(tree_files '*.h') || exit 1
if echo "$headers" |
    xargs grep -nE '^ *# *include *["<](zmq|czmq|msgpack|jansson|libfyaml|xxh|oneapi|dnnl|cuda|cublas|nccl|omp)' /dev/null; then
    echo "layers: a header of ours includes another library's"
    bad=1
fi
exit "$bad"
