#!/usr/bin/env bash
# Files have at most 500 lines, functions at most 60 (a body between braces in column 0).
set -u
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
files=$(tree_files '*.c' '*.h' '*.cu' '*.cuh' '*.sh' launch quickstart .ci/run tests/run tests/setup) || exit 1
echo "$files" | xargs awk '
    function end_file() {
        if (lines > 500) {
            print last ":501: the file has " lines " lines, at most 500"
            bad = 1
        }
    }
    FNR == 1 { end_file(); last = FILENAME; begin = 0 }
    { lines = FNR }
    /^\{/ { begin = FNR }
    /^\}/ {
        if (begin && FNR - begin - 1 > 60) {
            print FILENAME ":" begin ": a function of " FNR - begin - 1 " lines, at most 60"
            bad = 1
        }
        begin = 0
    }
    END { end_file(); exit bad }' || exit 1
