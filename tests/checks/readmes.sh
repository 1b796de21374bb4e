#!/usr/bin/env bash
# Every folder that holds sources has a README.md.
set -u
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
files=$(tree_files '*/*.c' '*/*.h' '*/*.cu' '*/*.sh' '*/*.yaml' '*/*.py') || exit 1
bad=0
for folder in $(echo "$files" | xargs -n 1 dirname | sort -u); do
    if [ ! -s "$folder/README.md" ]; then
        echo "$folder/README.md:1: readmes: is missing or empty"
        bad=1
    fi
done
exit "$bad"
