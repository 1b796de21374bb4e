#!/usr/bin/env bash
# Formatting is decided by .clang-format and nowhere else.
set -u
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
files=$(tree_files '*.c' '*.h' '*.cu' '*.cuh') || exit 1
echo "$files" | xargs clang-format --dry-run -Werror || exit 1
