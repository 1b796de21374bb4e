#!/usr/bin/env bash
# Compiles the GPU's kernels with nvcc, warnings as errors: tests/checks/cuda.sh BUILD [--all]
#
# For one architecture, with --all for every one that weir is built for. A kernel that spills registers
# fails, and one that two files have, because a linker may keep either. What each takes is printed and kept in
# BUILD/cuda_table.txt. nvcc is $NVCC, or in the path, or in $CUDA_HOME; without it the case is counted as skipped.
set -u
build=$(realpath "${1:?which build directory?}") || exit 1
architectures=(sm_90)
name=checks.cuda
if [ "${2:-}" = --all ]; then
    architectures=(sm_80 sm_90 sm_100)
    name=checks.cuda_all
fi
# shellcheck source=tests/checks/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"

# tests/run counts it as it counts the cases of cmocka.
skip() {
    echo "cuda: skipped: $1"
    mkdir -p "$build/results"
    cat >"$skipped" <<END
<testsuite name="cuda" time="0" tests="1" failures="0" errors="0" skipped="1" >
END
    exit 0
}

find_nvcc() {
    local candidate
    for candidate in "${NVCC:-}" "$(command -v nvcc)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            echo "$candidate"
            return
        fi
    done
}

# One file for one architecture; the host's half once.
compile() {
    local file=$1 architecture=$2 log
    local flags=(-std=c++17 "-arch=$architecture" -I. -D_GNU_SOURCE -DWEIR_KERNEL_VARIANT=cuda
        -Werror all-warnings -Xcompiler "-Wall,-Wextra,-Werror" -Xptxas -v)
    log=$logs/$(basename "$file" .cu).$architecture
    if [ "$architecture" = sm_90 ]; then
        flags+=(-c)
    else
        flags+=(-cubin)
    fi
    if ! "$nvcc" "${flags[@]}" -o "$log.o" "$file" >"$log.log" 2>&1; then
        grep -vE '^ptxas info|bytes stack frame' "$log.log"
        echo "$file:1: cuda: is not compiled for $architecture"
        return 1
    fi
}

# Reads what ptxas says of the kernels of one log; a line each: file, kernel, architecture, registers,
# bytes of shared memory, of the stack, of spills. Functions that a kernel calls count with it.
read_log() {
    local log
    log=$(basename "$1" .log)
    awk -v file="${log%.*}" -v architecture="${log##*.}" '
        /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; stack = spills = 0 }
        /bytes stack frame/ { stack += $1; spills += $5 + $9 }
        /: Used [0-9]+ registers/ {
            registers = $5; shared = 0
            for (i = 1; i < NF; i++) if ($(i + 2) ~ /^smem/) shared = $i
            print file "\t" kernel "\t" architecture "\t" registers "\t" shared "\t" stack "\t" spills
        }' "$1"
}

# The names of kernels as in the source, without arguments.
names() {
    if command -v c++filt >/dev/null; then
        c++filt | sed -E 's/\tvoid /\t/; s/\([^\t]*\)\t/\t/'
    else
        cat
    fi
}

skipped=$build/results/$name.skipped.xml
rm -f "$skipped"
nvcc=$(find_nvcc)
if [ -z "$nvcc" ]; then
    skip "no nvcc in the path, NVCC or CUDA_HOME, so only the host's compiler has seen tensor/cuda"
fi
files=$(tree_files 'tensor/cuda/*.cu') || exit 1
known=$("$nvcc" --list-gpu-code) || exit 1
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
export -f compile
export nvcc logs
# shellcheck disable=SC2016 # the inner shell expands them
for architecture in "${architectures[@]}"; do
    if ! grep -qx "$architecture" <<<"$known"; then
        echo "cuda: this nvcc does not know $architecture" >&2
        continue
    fi
    for file in $files; do
        echo "$file $architecture"
    done
done | xargs -P "$(nproc)" -L 1 bash -c 'compile "$0" "$1"' || exit 1

for log in "$logs"/*.log; do
    read_log "$log"
done >"$logs/read"
if cut -f 2,3 "$logs/read" | sort | uniq -d | names | grep .; then
    echo "cuda: these kernels are in two files"
    exit 1
fi
table=$logs/table
{
    printf 'file\tkernel\tarchitecture\tregisters\tshared\tstack\tspills\n'
    names <"$logs/read"
} | column -t -s $'\t' >"$table"
cp "$table" "$build/cuda_table.txt"
cat "$table"
if [ "$(wc -l <"$table")" -le 1 ]; then
    echo "cuda: nvcc said nothing of any kernel"
    exit 1
fi
if awk 'NR > 1 && $NF > 0' "$table" | grep .; then
    echo "cuda: these kernels spill registers"
    exit 1
fi
# Names of kernels may have spaces.
awk 'NR > 1 { kernels[$(NF - 4)]++; if ($(NF - 3) > most) most = $(NF - 3) }
    END { for (a in kernels) printf "cuda: %d kernels for %s\n", kernels[a], a
          printf "cuda: none spills registers, the largest takes %d of 255\n", most }' "$table"
