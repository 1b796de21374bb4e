#!/usr/bin/env bash
# The environment is read in base/env.c and nowhere else, so that its table tells all.
set -u
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
files=$(tree_files '*.c' '*.h' '*.cu' '*.cuh' ':!tests' ':!base/env.c') || exit 1
# Lines of a comment that begin with its star may speak of it.
if echo "$files" | xargs grep -nE '\b((secure_)?getenv *\(|environ\b)' /dev/null | grep -vE '^[^:]*:[0-9]+: ?\*'; then
    echo "getenv: only base/env.c reads the environment"
    exit 1
fi
