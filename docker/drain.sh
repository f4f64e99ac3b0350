#!/bin/sh
# drain.sh SECONDS FOLDER...: ask the runs in these folders to save and stop, and wait until they have, or for so long.
# What a pod without which they cannot go on does before it ends.
set -eu
left=$1
shift
asked=""
for folder in "$@"; do
    if grep -q '"state": "running"' "$folder/status.json" 2> /dev/null; then
        touch "$folder/PREEMPTED" "$folder/STOP"
        asked="$asked $folder"
    fi
done
for folder in $asked; do
    while [ -e "$folder/STOP" ] && [ "$left" -gt 0 ]; do # the controller removes it when it has saved
        sleep 1
        left=$((left - 1))
    done
done
