#!/bin/sh
# alive.sh [MINUTES]: fails if a run of this container says that it runs, and has written nothing for so long.
minutes=${1:-15}
find "${CAIRN_RUNS:-/runs}" -mindepth 2 -maxdepth 2 -name status.json -mmin "+$minutes" 2> /dev/null | while read -r status; do
    if grep -q '"state": "running"' "$status" && grep -q "\"host\": \"$(hostname)\"" "$status"; then
        echo "$status is older than $minutes minutes"
        exit 1
    fi
done
