#!/usr/bin/env bash
# No unfinished work, no fast-math, no path of somebody's machine.
set -u
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
files=$(tree_files . ':!tests/checks/words.sh' ':!LICENSE' ':!*.safetensors' ':!*.svg') || exit 1
bad=0
# Runs of X are templates of names, as mkstemp() wants them.
if echo "$files" | xargs grep -nwE 'TODO|FIXME|XXX|HACK' /dev/null; then
    echo "words: unfinished work"
    bad=1
fi
if echo "$files" | grep -v '\.md$' | xargs grep -nE -e '-ffast-math|-Ofast|--?use_fast_math' /dev/null; then
    echo "words: numbers are promised, so no fast-math"
    bad=1
fi
if echo "$files" | xargs grep -nE '(^|[^A-Za-z0-9_.])/(work|farm|home|root)/' /dev/null; then
    echo "words: a path of somebody's machine"
    bad=1
fi
exit "$bad"
