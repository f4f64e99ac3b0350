#!/bin/bash
# lock.sh: the exact version and hashes of every package in each image, from requirements.txt and llm.in; needs uv on PATH.
set -euo pipefail
cd "$(dirname "$0")"
requirements=$(mktemp)
trap 'rm -f "$requirements"' EXIT
sed -E 's/ +#.*//; /^#/d' ../requirements.txt > "$requirements"
version=$(sed -n 's/^torch==//p' "$requirements")
if ! grep -q "/torch-$version%2Bcpu-" torch-cpu.txt; then
    echo "error: torch-cpu.txt is not of torch $version: change its address and its hash" >&2
    exit 2
fi
head="# Made by docker/lock.sh: every package of the image. Change requirements.txt, and make it again."
lock() { # lock SOURCE FILE: what FILE has stays at its version where it may
    uv pip compile --quiet --no-header --no-annotate --generate-hashes --python-version 3.11 \
        --python-platform x86_64-manylinux_2_28 --constraint "$requirements" --output-file "$2" "$1" > /dev/null
    sed -i "1i $head" "$2"
}
lock "$requirements" gpu.lock
lock llm.in llm.lock
# PyTorch for CPUs does without what it brings along for GPUs.
{ awk '/^[^ ]/ { keep = !/^(nvidia-|cuda-|triton|torch=)/ } keep' gpu.lock && grep -v '^#' torch-cpu.txt; } > cpu.lock
# What comes as source is built with this setuptools, which must be there first.
awk '/^[^ ]/ { keep = /^(#|setuptools=)/ } keep' gpu.lock > build.lock
