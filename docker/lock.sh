#!/bin/bash
# lock.sh: the exact version of every package in each image, from requirements.txt and llm.in; needs uv on PATH.
set -euo pipefail
cd "$(dirname "$0")"
requirements=$(mktemp)
trap 'rm -f "$requirements"' EXIT
sed -E 's/ +#.*//; /^#/d' ../requirements.txt > "$requirements"
lock() { # lock SOURCE: on standard output
    uv pip compile --quiet --no-header --no-annotate --python-version 3.11 \
        --python-platform x86_64-manylinux_2_28 --constraint "$requirements" "$1"
}
gpu=$(lock "$requirements")
llm=$(lock llm.in)
head="# Made by docker/lock.sh: every package of the image. Change requirements.txt, and make it again."
printf '%s\n%s\n' "$head" "$gpu" > gpu.lock
printf '%s\n%s\n' "$head" "$llm" > llm.lock
# PyTorch for CPUs does without what it brings along for GPUs.
printf '%s\n%s\n' "$head" "$(grep -vE '^(nvidia-|cuda-|triton)' <<< "$gpu")" > cpu.lock
