#!/usr/bin/env bash
# Files have at most 500 lines, functions at most 60 (a body between braces in column 0).
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' launch quickstart '*.sh' tests/run tests/setup |
    while read -r file; do
        [ -f "$file" ] && awk -v file="$file" '
            /^\{/ { begin = NR }
            /^\}/ { if (begin && NR - begin - 1 > 60) { print file ":" begin ": function of " NR - begin - 1 " lines"; bad = 1 } begin = 0 }
            END { if (NR > 500) { print file ": " NR " lines"; bad = 1 } exit bad }' "$file" || echo FAILED
    done | grep -v '^$' | {
    found=$(cat)
    if [ -n "$found" ]; then
        echo "$found" | grep -v '^FAILED$'
        exit 1
    fi
}
