#!/usr/bin/env bash
# Every header compiles alone, as C17 and, where it is not private to C files, as C++17; its guard is
# its path.
set -u
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"
headers=$(tree_files '*.h') || exit 1
bad=0
# Without -Wpedantic, to which a header of macros alone is an empty file.
flags=(-D_GNU_SOURCE -DWEIR_KERNEL_VARIANT=base -I. -Wall -Wextra -Werror -fsyntax-only)

for header in $headers; do
    echo "#include \"$header\"" | gcc -std=c17 "${flags[@]}" -x c - || bad=1
    case $header in
    tests/* | *_cpu.h) continue ;; # private to C files
    esac
    echo "#include \"$header\"" | g++ -std=c++17 "${flags[@]}" -x c++ - || bad=1
    guard=$(echo "$header" | tr 'a-z/.' 'A-Z__')
    if ! grep -q "^#ifndef $guard\$" "$header" || ! grep -q "^#define $guard\$" "$header"; then
        echo "$header:1: headers: the guard must be $guard"
        bad=1
    fi
done
exit "$bad"
