#!/usr/bin/env bash
# clang-tidy over the sources of a build directory: tests/checks/tidy.sh BUILD
set -u
build=$(realpath "${1:?which build directory?}")
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
files=$(tree_files '*.c') || exit 1
if [ ! -f "$build/compile_commands.json" ]; then
    echo "tidy: $build has no compile_commands.json; is it a build directory?" >&2
    exit 1
fi
# What it says on stderr are counts of what it suppressed.
echo "$files" | xargs -P 2 -n 4 clang-tidy -p "$build" --quiet 2> >(grep -v 'warnings\? generated\.$' >&2) || exit 1
