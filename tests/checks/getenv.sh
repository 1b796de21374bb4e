#!/usr/bin/env bash
# The environment is read in base/env.c and nowhere else, so that its table tells all.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
hits=$(git ls-files -co --exclude-standard -- base tensor collectives mixedprec scheduler stages |
    grep -E '\.[ch]$' | grep -v '^base/env\.c$' | xargs grep -nE '\b(secure_)?getenv\(' | grep -vE '^[^:]*:[0-9]+: ?\*')
if [ -n "$hits" ]; then
    echo "$hits"
    exit 1
fi
