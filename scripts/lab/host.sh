#!/bin/sh
# Runs one host of a lab: creates its network, boots it, and repeats both after each
# reboot. It continues after the process that started it has ended. The removal of the
# lab finds it in the host's cgroup.
#
# usage: host.sh HOST.env (written by the lab, see writeEnv)
set -eu
. "$1"

# Every hierarchy has a cgroup for the host with two children: this script runs in
# "supervisor", the booted system below "boot". cgroup v2 allows processes only in
# leaves, and the system's cgroup namespace begins at "boot".
enter() {
    for c in $CGROUPS; do echo 0 >"$c/$1/cgroup.procs"; done
}

make_cgroup() { # parent child
    mkdir -p "$1/$2"
    for f in cpuset.cpus cpuset.mems; do # v1 creates them empty, and then no process can enter
        if [ -e "$1/cgroup.clone_children" ] && [ -e "$1/$f" ]; then cat "$1/$f" >"$1/$2/$f"; fi
    done
    if [ -e "$1/cgroup.controllers" ]; then # v2 enables only the listed controllers for children
        for controller in $(cat "$1/cgroup.controllers"); do
            echo "+$controller" >"$1/cgroup.subtree_control"
        done
    fi
}

fresh_cgroups() {
    for c in $CGROUPS; do
        if [ -d "$c/boot" ]; then find "$c/boot" -depth -type d -exec rmdir {} \;; fi
        make_cgroup "$c" boot
    done
}

# Every boot gets a new network namespace, without the interfaces, routes and nftables
# rules of the boot before, and a host that is off has none. The counters of the old one are saved, because the lab counts
# escapes since a host was created.
plug() {
    unplug
    ip netns add "$NETNS"
    ip -n "$NETNS" link set lo up
    n=0
    for nic in $NICS; do # mac=address=bridge
        mac=${nic%%=*} bridge=${nic##*=} address=${nic#*=}
        address=${address%=*}
        ip -n "$SWITCH" link add "$NAME.$n" type veth \
            peer name "eth$n" netns "$NETNS" address "$mac"
        ip -n "$SWITCH" link set "$NAME.$n" master "$bridge" up
        ip -n "$NETNS" address add "$address" brd + dev "eth$n"
        ip -n "$NETNS" link set "eth$n" up
        n=$((n + 1))
    done
}

unplug() {
    n=0
    for nic in $NICS; do
        ip -n "$SWITCH" link del "$NAME.$n" 2>/dev/null || true
        n=$((n + 1))
    done
    if [ -e "/run/netns/$NETNS" ]; then
        nsenter --net="/run/netns/$NETNS" \
            cat /proc/net/snmp /proc/net/netstat /proc/net/snmp6 >>"$COUNTERS"
        ip netns del "$NETNS"
    fi
}

# Without a machine manager, --keep-unit makes nspawn exit with status 133 when the system
# requests a reboot, instead of rebooting it in the old network namespace.
boot() (
    enter boot
    exec env SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 SYSTEMD_NSPAWN_TMPFS_TMP=0 SYSTEMD_NSPAWN_LOCK=0 \
        systemd-nspawn --quiet --directory="$ROOT" --machine="$MACHINE" --hostname="$NAME" \
        --register=no --keep-unit --boot --console=pipe \
        --network-namespace-path="/run/netns/$NETNS" \
        --resolv-conf=off --timezone=off --link-journal=no \
        --capability=all --system-call-filter="@keyring bpf" \
        --bind=/dev/kmsg $NSPAWN_FLAGS
)

for c in $CGROUPS; do make_cgroup "$c" supervisor; done
enter supervisor
while :; do
    fresh_cgroups
    plug
    status=0
    boot || status=$?
    echo "host.sh: systemd-nspawn ended with status $status"
    [ "$status" -eq 133 ] || break
done
unplug
exit "$status"
