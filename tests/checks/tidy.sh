#!/usr/bin/env bash
# clang-tidy over the sources of a build directory: tests/checks/tidy.sh BUILD
set -u
build=$(realpath "${1:?which build directory?}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
git ls-files -- '*.c' | grep -vE '_cpu\.c$|^tests/fuzz/' |
    xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet 2>/dev/null
