#!/bin/bash
# A real SLURM on this machine, for tests: slurm.sh start FOLDER [NODES] | slurm.sh stop FOLDER
#
#   slurmctld here ── bridge cairn0 10.213.7.1 ──┬── 10.213.7.11  slurmd n1   each in its own network, process and
#                                                └── 10.213.7.12  slurmd n2   host names: a machine of its own
#
# Needs root; installs SLURM by apt if it is not there. Where namespaces are forbidden there is one node, this machine.
# Afterwards FOLDER/slurm.conf is what SLURM_CONF must name, and FOLDER/nodes says how many there are.
set -eu

folder=$(realpath -m "$2")
state=$folder/state

install() {
    command -v slurmctld > /dev/null && command -v munged > /dev/null && command -v ip > /dev/null &&
        command -v ps > /dev/null && return
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends slurm-wlm munge iproute2 procps
}

authenticate() {
    munge -n > /dev/null 2>&1 && return
    mkdir -p /run/munge
    chown munge: /run/munge
    runuser -u munge -- /usr/sbin/munged --force
    touch "$state/own_munge"
}

isolated() { # may this process make namespaces and networks? What a suite that was killed has left goes first.
    local space
    for space in $(ip netns list 2> /dev/null | grep -o '^cairn[0-9]*'); do
        ip netns del "$space"
    done
    ip link del cairn0 2> /dev/null
    unshare --net --pid --uts --mount --fork --mount-proc true 2> /dev/null &&
        ip link add cairn0 type bridge 2> /dev/null
}

node() { # node NUMBER: a slurmd on a machine of its own
    local name=n$1 space=cairn$1
    ip netns add "$space"
    ip link add "$space" type veth peer name eth0 netns "$space"
    ip link set "$space" master cairn0 up
    ip -n "$space" link set lo up
    ip -n "$space" address add "10.213.7.1$1/24" dev eth0
    ip -n "$space" link set eth0 up
    ip -n "$space" route add default via 10.213.7.1 # by it Ray finds the node's own address
    # bash is process 1, and takes in what its jobs leave behind.
    nsenter --net="/run/netns/$space" setsid unshare --pid --uts --mount --fork --mount-proc --kill-child \
        bash -c "hostname $name; slurmd -D -N $name & wait" > "$state/$name.out" 2>&1 < /dev/null &
    echo $! > "$state/$name.unshare"
}

start() {
    local nodes=${1:-2} names=n1 address=10.213.7.1 i
    mkdir -p "$state/controller"
    install
    authenticate
    if [ "$nodes" -gt 1 ] && isolated; then
        ip address add 10.213.7.1/24 dev cairn0
        ip link set cairn0 up
        names="n[1-$nodes]"
    else
        nodes=1 address=127.0.0.1 names=$(hostname -s)
    fi
    cat > "$folder/slurm.conf" << CONF
ClusterName=cairn
SlurmctldHost=$(hostname -s)($address)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$state/controller
SlurmdSpoolDir=$state/%n
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/%n.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=bf_interval=2,sched_min_interval=0
SlurmdParameters=config_overrides
CONF
    if [ "$nodes" -gt 1 ]; then
        for i in $(seq "$nodes"); do
            echo "NodeName=n$i NodeAddr=10.213.7.1$i CPUs=4 RealMemory=4000 State=UNKNOWN" >> "$folder/slurm.conf"
        done
    else
        echo "NodeName=$names NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=UNKNOWN" >> "$folder/slurm.conf"
    fi
    echo "PartitionName=main Nodes=$names Default=YES State=UP MaxTime=60" >> "$folder/slurm.conf"
    export SLURM_CONF=$folder/slurm.conf
    slurmctld
    if [ "$nodes" -gt 1 ]; then
        for i in $(seq "$nodes"); do
            mkdir -p "$state/n$i"
            node "$i"
        done
    else
        slurmd
    fi
    for i in $(seq 60); do
        if [ "$(sinfo --noheader --Node --states=idle | wc -l)" -eq "$nodes" ]; then
            echo "$nodes" > "$folder/nodes"
            return
        fi
        sleep 0.5
    done
    sinfo >&2
    tail "$state"/*.log "$state"/*.out >&2
    return 1
}

stop() {
    local file
    for file in "$state"/*.pid "$state"/*.unshare; do
        [ -e "$file" ] && kill "$(cat "$file")" 2> /dev/null
    done
    sleep 1
    for file in "$state"/*.unshare; do
        [ -e "$file" ] || continue
        kill -9 "$(cat "$file")" 2> /dev/null
        ip netns del "$(basename "$file" .unshare | sed s/n/cairn/)"
    done
    if [ -n "$(ls "$state"/*.unshare 2> /dev/null)" ]; then
        ip link del cairn0
    fi
    if [ -e "$state/own_munge" ]; then
        kill "$(cat /run/munge/munged.pid)"
    fi
} 2> /dev/null

case $1 in
    start) start "${3:-2}" ;;
    stop) set +e && stop ;;
    *) echo "slurm.sh start FOLDER [NODES] | slurm.sh stop FOLDER" >&2 && exit 2 ;;
esac
