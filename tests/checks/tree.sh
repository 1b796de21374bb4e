# shellcheck shell=bash
# Sourced by the checks: goes to the root of the tree and says which files it holds.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

# Prints the files that match the patterns, tracked or new, ignored ones left out. Fails where there
# are none or git cannot tell, because a check that looks at nothing would pass.
tree_files() {
    local file found=no
    while read -r file; do
        if [ -f "$file" ]; then
            echo "$file"
            found=yes
        fi
    done < <(git ls-files -co --exclude-standard -- "$@" | sort)
    if [ "$found" = no ]; then
        echo "checks: git lists no file for: $*" >&2
        return 1
    fi
}
