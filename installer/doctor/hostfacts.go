package doctor

// hostFacts describes the machine: kernel, processor, memory, disks, processes.
func (d *Doctor) hostFacts() []source {
	return []source{
		commands("host/system.txt", "uname -a", "hostnamectl", "uptime", "nproc", "systemd-detect-virt", "cat /proc/cmdline"),
		commands("host/memory.txt", "free -m", "cat /proc/meminfo", "cat /proc/swaps", "cat /proc/pressure/memory", "cat /proc/pressure/io", "cat /proc/pressure/cpu"),
		commands("host/disk.txt", "df -h", "df -i", "cat /proc/self/mountinfo", "lsblk", "du -xsh /var/lib/containerd /var/lib/kubelet /var/lib/etcd /var/log"),
		commands("host/processes.txt", "ps -eo pid,ppid,user,stat,rss,etime,comm --sort=-rss"), // no arguments, which may be secrets
		commands("host/clock.txt", "date -u", "timedatectl", "timedatectl timesync-status", "chronyc -n tracking", "chronyc -n sources", "ntpq -pn"),
		commands("host/modules.txt", "cat /proc/modules"),
		commands("host/sysctl.txt", "sysctl -a"),
		commands("host/cgroups.txt", "cat /proc/self/cgroup", "cat /sys/fs/cgroup/cgroup.controllers", "cat /proc/cgroups", "systemd-cgls --no-pager --depth=3"),
		commands("host/security.txt", "getenforce", "aa-status", "cat /sys/kernel/security/lsm"),
		commands("host/binaries.txt", "ls -l /usr/local/bin /usr/local/sbin /opt/cni/bin", "kubelet --version", "containerd --version", "runc --version"),
	}
}

// network describes addresses, routes and rules.
func (d *Doctor) network() []source {
	return []source{
		commands("network/addresses.txt", "ip -details address", "ip -s link"),
		commands("network/routes.txt", "ip route show table all", "ip -6 route show table all", "ip rule", "ip neighbour", "bridge fdb"),
		commands("network/sockets.txt", "ss -tulpn", "ss -s"),
		commands("network/nftables.txt", "nft list ruleset"),
		commands("network/iptables.txt", "iptables --version", "iptables-save -c", "ip6tables-save -c", "iptables-legacy-save -c"),
		commands("network/firewall.txt", "firewall-cmd --list-all-zones", "ufw status verbose"),
		commands("network/conntrack.txt", "cat /proc/sys/net/netfilter/nf_conntrack_count", "cat /proc/sys/net/netfilter/nf_conntrack_max"),
	}
}
