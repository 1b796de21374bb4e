#!/usr/bin/env bash
# Every script passes the shell linter.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
git ls-files -co --exclude-standard | while read -r file; do
    if [ -f "$file" ] && head -n 1 "$file" | grep -qE '^#!.*\b(ba)?sh\b'; then
        echo "$file"
    fi
done | xargs shellcheck
