#!/bin/bash
# run.sh FOLDER WORDS: begin the run in FOLDER with the words in the file WORDS, one a line; if it is there, go on with it.
# On Kubernetes this is the job's entry point. Exit codes are those of launch.py, but for a stop that was asked for by
# people: that ends the job well (0), while one that a dying pod asked for (drain.sh) is to be tried again (3). So is
# what the surroundings ended (5), such as a model that is away or actors without room: Kubernetes is told of a failure.
set -euo pipefail
folder=$1
words=$2
cd "$(dirname "$0")/.."
export CAIRN_JOB=${CAIRN_JOB:-kubernetes}
if [ -n "${RAY_ADDRESS:-}" ]; then # of the Ray cluster that this job was given to
    export CAIRN_RAY_ADDRESS=$RAY_ADDRESS
    unset RAY_ADDRESS
fi
rm -f "$folder/PREEMPTED"

if [ -e "$folder/config.yaml" ]; then
    command=(resume "$folder")
else
    # A pod that ended while it made the folder left only empty ones: nothing of a run.
    if [ -d "$folder" ]; then find "$folder" -type d -empty -delete; fi
    mapfile -t given < "$words"
    command=(run "${given[@]}")
fi

python launch.py "${command[@]}" &
child=$!
trap 'kill -TERM "$child"' TERM INT
code=0
while :; do # a signal ends the wait and not the child, which saves first
    wait "$child" && code=0 || code=$?
    kill -0 "$child" 2> /dev/null || break
done
if [ "$code" -eq 3 ] && [ ! -e "$folder/PREEMPTED" ]; then
    echo "stopped as asked; apply the same manifest again to go on"
    exit 0
fi
exit "$code"
