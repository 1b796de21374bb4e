#!/usr/bin/env bash
# No unfinished work, no fast-math, no path of somebody's machine.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
files=$(git ls-files -co --exclude-standard | grep -vE '^tests/checks/words\.sh$|^LICENSE$|\.safetensors$|\.svg$')
bad=0
# shellcheck disable=SC2086 # names of this tree hold no blanks
if grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $files | grep -v 'XXXXXX'; then
    bad=1
fi
sources=$(echo "$files" | grep -v '\.md$')
# shellcheck disable=SC2086
if grep -nE -- '-ffast-math|-Ofast|--use_fast_math' $sources; then
    bad=1
fi
# shellcheck disable=SC2086
if grep -nE '(^|[^A-Za-z0-9_.])/(work|farm|home|root)/' $files; then
    bad=1
fi
exit "$bad"
