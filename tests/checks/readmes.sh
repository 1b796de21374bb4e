#!/usr/bin/env bash
# Every folder that holds sources has a README.md.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bad=0
while read -r folder; do
    if [ ! -s "$folder/README.md" ]; then
        echo "$folder has no README.md"
        bad=1
    fi
done < <(git ls-files -co --exclude-standard | grep -E '\.(c|h|sh|yaml)$' | grep '/' | xargs -n 1 dirname | sort -u)
exit "$bad"
