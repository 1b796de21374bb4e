#!/usr/bin/env bash
# Every header compiles alone, as C17 and as C++17.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
bad=0
flags=(-D_GNU_SOURCE -I. -Wall -Wextra -Werror -fsyntax-only)
while read -r header; do
    # variant.h is macros alone, which -Wpedantic would call an empty file: it is not asked here.
    echo "#include \"$header\"" | gcc -std=c17 "${flags[@]}" -DWEIR_KERNEL_VARIANT=base -x c - || bad=1
    case $header in
    tests/* | *_cpu.h) continue ;; # private to C files
    esac
    echo "#include \"$header\"" | g++ -std=c++17 "${flags[@]}" -DWEIR_KERNEL_VARIANT=base -x c++ - || bad=1
done < <(git ls-files -co --exclude-standard -- '*.h')
exit "$bad"
