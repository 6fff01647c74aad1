// Package detection finds out facts of this host: its addresses, cgroups, swap and resolver. It changes
// nothing.
package detection

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"airlift/installer/config"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/systemd"
	"airlift/internal/fault"
)

// Options are the user's options that affect detection.
type Options struct {
	// NodeIP is the node's address, if the user gave one, or one of each
	// family, separated by a comma.
	NodeIP string
	// ForOtherHost is set if files are rendered for another host: NodeIP need
	// not be an address of this one.
	ForOtherHost bool
	// Peer is a host, or host:port, that this node connects to: for join,
	// the API server. The node's address is the source address of packets to
	// it.
	Peer string
	// AddressFlag is the flag that sets the address, for hints.
	AddressFlag string
	// Networking has the given ranges of the cluster. The node's address must be outside of them
	// and of their family.
	Networking config.Networking
	// NewCluster is set for init: ranges that are not given become the
	// defaults of the address' family.
	NewCluster bool
	// CNI is "none" if pods have no default range.
	CNI string
}

// Detect collects the facts about this host that rendering needs. It changes
// nothing.
func Detect(ctx context.Context, root filesystem.Root, o Options) (config.Facts, error) {
	f := config.Facts{NumCPU: runtime.NumCPU()}

	name, err := os.Hostname()
	if err != nil {
		return f, fmt.Errorf("reading the host's name: %w", err)
	}
	f.Hostname = strings.ToLower(strings.TrimSpace(name))

	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return f, fmt.Errorf("reading the size of memory: %w", err)
	}
	f.MemoryBytes = uint64(info.Totalram) * uint64(info.Unit)

	if f.CgroupVersion, err = cgroupVersion(root); err != nil {
		return f, err
	}
	f.CgroupDriver = cgroupDriver(root, f.CgroupVersion)
	if f.RestrictOOMScoreAdj, err = restrictOOMScoreAdj(root); err != nil {
		return f, err
	}
	f.ConntrackWritable = conntrackWritable(root)
	if f.SwapOn, err = swapOn(root); err != nil {
		return f, err
	}
	if f.ResolvConf, f.Nameservers, err = resolver(root); err != nil {
		return f, err
	}

	defaults, err := defaultRoutes()
	if err != nil {
		return f, err
	}
	f.DefaultRoute = len(defaults) > 0
	var other string
	o.NodeIP, other, _ = strings.Cut(o.NodeIP, ",")
	address, err := nodeAddress(ctx, o)
	if err != nil {
		return f, err
	}
	f.NodeIP, f.Interface, f.MTU = address.IP.String(), address.Interface, address.MTU
	f.OtherIP, err = otherAddress(address, other, o)
	return f, err
}

// otherAddress returns the node's address of the other family than a's: the user's choice, or an
// address of the same interface, or the default route's, or the only one. It returns "" without
// such an address.
func otherAddress(a Address, given string, o Options) (string, error) {
	if given != "" {
		other, err := addressNamed(given, o.AddressFlag)
		if err == nil && config.FamilyOf(other.IP) == config.FamilyOf(a.IP) {
			err = fault.New(fault.Usage, "reading %s: %s and %s are both %s", o.AddressFlag, a.IP, other.IP, config.FamilyOf(a.IP)).Hint("give one address, or one of each family")
		}
		return other.IP.String(), err
	}
	if o.ForOtherHost {
		return "", nil
	}
	others, err := Addresses()
	if err != nil {
		return "", err
	}
	others = slices.DeleteFunc(others, func(b Address) bool { return config.FamilyOf(b.IP) == config.FamilyOf(a.IP) })
	for _, suits := range []func(Address) bool{
		func(b Address) bool { return b.Interface == a.Interface },
		func(b Address) bool { return b.Default },
		func(Address) bool { return len(others) == 1 },
	} {
		if i := slices.IndexFunc(others, suits); i >= 0 {
			return others[i].IP.String(), nil
		}
	}
	return "", nil
}

// nodeAddress is the user's choice, or the source address towards the peer, or
// ChooseAddress' choice.
func nodeAddress(ctx context.Context, o Options) (Address, error) {
	if ip, err := netip.ParseAddr(o.NodeIP); err == nil && o.ForOtherHost {
		return Address{IP: ip}, nil
	}
	if o.NodeIP != "" {
		return addressNamed(o.NodeIP, o.AddressFlag)
	}
	for _, list := range []config.CIDRs{o.Networking.PodSubnet, o.Networking.ServiceSubnet} {
		if list.Invalid() != "" {
			return Address{}, fault.New(fault.Usage, "%q is not an address range", list.Invalid()).Hint("write it like 10.244.0.0/16")
		}
	}
	if o.Peer != "" {
		peer, err := resolvePeer(ctx, o.Peer)
		if err != nil {
			return Address{}, err
		}
		// Without a route to the peer, the later connection attempt gives
		// the better error.
		if ip, err := ownAddress(peer); err == nil && !ip.IsLoopback() {
			return addressNamed(ip.String(), o.AddressFlag)
		}
	}
	candidates, err := Addresses()
	if err != nil {
		return Address{}, err
	}
	return chooseForRanges(candidates, o)
}

// chooseForRanges chooses an address of the family of the cluster's ranges. If
// no range is given, a host with an IPv4 address gets an IPv4 cluster, and a
// host with only IPv6 addresses gets an IPv6 cluster.
func chooseForRanges(candidates []Address, o Options) (Address, error) {
	ranges, family := o.Networking, o.Networking.Family()
	switch {
	case family == "" && len(candidates) > 0:
		family = config.FamilyOf(candidates[0].IP) // IPv4 comes first
	case family == "":
		family = config.IPv4
	}
	if o.NewCluster {
		ranges = ranges.WithDefaults(family, o.CNI)
	}
	usable := slices.DeleteFunc(slices.Clone(candidates), func(a Address) bool { return config.FamilyOf(a.IP) != family })
	if len(usable) == 0 && len(candidates) > 0 {
		return Address{}, fault.New(fault.Usage, "choosing this node's address: the cluster's %s range %s is %s, and this host has no %s address; it has:%s",
			o.Networking.Ranges()[0].Of, o.Networking.Ranges()[0].Prefix, family, family, list(candidates)).
			Hint("give ranges of the family of this host's address, or give none to use the defaults of that family")
	}
	return ChooseAddress(usable, o.AddressFlag, ranges.Ranges()...)
}

// list returns the addresses, one on each line.
func list(addresses []Address) string {
	var lines strings.Builder
	for _, a := range addresses {
		lines.WriteString("\n  " + a.String())
	}
	return lines.String()
}

// addressNamed finds the interface with the address that the user gave.
func addressNamed(text, flag string) (Address, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return Address{}, fault.New(fault.Usage, "reading %s %q: %w", flag, text, err).Hint("give one of this host's addresses")
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return Address{}, fmt.Errorf("listing network interfaces: %w", err)
	}
	for _, link := range interfaces {
		addrs, err := link.Addrs()
		if err != nil {
			return Address{}, fmt.Errorf("listing the addresses of %s: %w", link.Name, err)
		}
		for _, a := range addrs {
			if own, err := netip.ParsePrefix(a.String()); err == nil && own.Addr().Unmap() == ip {
				return Address{Interface: link.Name, IP: ip, MTU: link.MTU}, nil
			}
		}
	}
	candidates, err := Addresses()
	if err != nil {
		return Address{}, err
	}
	return Address{}, fault.New(fault.Usage, "reading %s: no interface of this host has the address %q; it has:%s", flag, text, list(candidates)).
		Hint("give one of this host's addresses")
}

// resolvePeer turns "host" or "host:port" into an address. A lookup may take only
// a few seconds: on an isolated host the resolver may never answer.
func resolvePeer(ctx context.Context, peer string) (netip.Addr, error) {
	host := peer
	if h, _, err := net.SplitHostPort(peer); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, fault.New(fault.Failure, "looking up %q: %w", host, err).Hint("use its address, or add the name to /etc/hosts")
	}
	return ips[0].Unmap(), nil
}

func cgroupVersion(root filesystem.Root) (int, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(root.Path("/sys/fs/cgroup"), &st); err != nil {
		return 0, fault.New(fault.Preflight, "reading /sys/fs/cgroup: %w", err).Hint("boot this host with systemd")
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return 2, nil
	}
	return 1, nil // also the hybrid layout, which has v1's controllers
}

// cgroupDriver is "systemd" if systemd can manage all cgroups. It is "cgroupfs"
// without systemd, and in a container with cgroup v1: there systemd sees only
// parts of the tree, and its slices are missing in some controllers.
func cgroupDriver(root filesystem.Root, version int) string {
	if !systemd.Booted(root) {
		return "cgroupfs"
	}
	// systemd writes this file when it boots in a container.
	if version == 1 && filesystem.Exists(root.Path("/run/systemd/container")) {
		return "cgroupfs"
	}
	return "systemd"
}

// restrictOOMScoreAdj reports whether this host may not lower the OOM score of containers below the
// score of systemd's services. The kernel requires CAP_SYS_RESOURCE in the initial user namespace
// for that.
func restrictOOMScoreAdj(root filesystem.Root) (bool, error) {
	status, err := os.ReadFile(root.Path("/proc/1/status"))
	if err != nil {
		return false, fmt.Errorf("reading init's capabilities: %w", err)
	}
	for _, field := range []string{"CapBnd:", "CapPrm:"} {
		set, err := capabilities(status, field)
		if err != nil {
			return false, err
		}
		if set&(1<<unix.CAP_SYS_RESOURCE) == 0 {
			return true, nil
		}
	}
	uids, err := filesystem.FirstLine(root.Path("/proc/1/uid_map"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a kernel without user namespaces
	}
	if err != nil {
		return false, fmt.Errorf("reading init's user namespace: %w", err)
	}
	return !slices.Equal(strings.Fields(uids), []string{"0", "0", "4294967295"}), nil
}

func capabilities(status []byte, field string) (uint64, error) {
	for _, line := range strings.Split(string(status), "\n") {
		if hex, ok := strings.CutPrefix(line, field); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("reading init's capabilities: %w", err)
			}
			return set, nil
		}
	}
	return 0, fmt.Errorf("reading init's capabilities: no %s in its status", field)
}

// conntrackWritable reports whether kube-proxy can set nf_conntrack_max, which
// the kernel allows only in the initial network namespace. It tests this by
// writing the current value. Before the module is loaded the file is missing;
// netdev_max_backlog then also exists only in the initial namespace.
func conntrackWritable(root filesystem.Root) bool {
	const max = "/proc/sys/net/netfilter/nf_conntrack_max"
	value, err := filesystem.FirstLine(root.Path(max))
	if errors.Is(err, fs.ErrNotExist) {
		var st unix.Statfs_t
		readOnly := unix.Statfs(root.Path("/proc/sys"), &st) != nil || st.Flags&unix.ST_RDONLY != 0
		return !readOnly && filesystem.Exists(root.Path("/proc/sys/net/core/netdev_max_backlog"))
	}
	if err != nil {
		return false
	}
	f, err := os.OpenFile(root.Path(max), os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err == nil
}

func swapOn(root filesystem.Root) (bool, error) {
	data, err := os.ReadFile(root.Path("/proc/swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a kernel without swap
	}
	if err != nil {
		return false, fmt.Errorf("reading /proc/swaps: %w", err)
	}
	// The first line is the table's heading.
	return len(bytes.Split(bytes.TrimSpace(data), []byte("\n"))) > 1, nil
}

// resolver returns the resolver file for pods and its nameservers that pods can
// reach, which excludes loopback and link-local addresses. If /etc/resolv.conf
// has only systemd-resolved's stub, it returns systemd-resolved's own file, as
// kubeadm does. Without a resolver file the path is "".
func resolver(root filesystem.Root) (path string, nameservers []string, err error) {
	const resolved, usual = "/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"
	for _, path := range []string{usual, resolved} {
		data, err := os.ReadFile(root.Path(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("reading the resolver's configuration: %w", err)
		}
		listed, usable := readNameservers(data)
		stubOnly := len(listed) > 0 && len(usable) == 0
		if path == usual && stubOnly && filesystem.Exists(root.Path(resolved)) {
			continue
		}
		return path, usable, nil
	}
	return "", nil, nil
}

func readNameservers(resolvConf []byte) (listed, usable []string) {
	lines := bufio.NewScanner(bytes.NewReader(resolvConf))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		listed = append(listed, fields[1])
		if ip, err := netip.ParseAddr(fields[1]); err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			usable = append(usable, fields[1])
		}
	}
	return listed, usable
}

// Kernel returns the version of the running kernel: "6.12.48+deb13-amd64".
func Kernel() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("reading the kernel's version: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}
