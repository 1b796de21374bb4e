#!/usr/bin/env bash
# Formatting is decided by .clang-format and nowhere else.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run -Werror
