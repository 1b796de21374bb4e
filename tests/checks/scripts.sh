#!/usr/bin/env bash
# Every script passes the shell linter.
set -u
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
files=$(tree_files .) || exit 1
scripts=$(echo "$files" | while read -r file; do
    if [[ $file == *.sh ]] || head -c 64 "$file" | head -n 1 | grep -qaE '^#!.*\b(ba)?sh\b'; then
        echo "$file"
    fi
done)
echo "$scripts" | xargs shellcheck -x || exit 1
