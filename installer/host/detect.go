package host

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

	"airlift/fault"
	"airlift/installer/config"
)

// Options are what the user said that bears on detection.
type Options struct {
	// NodeIP is the node's address where the user named it.
	NodeIP string
	// Elsewhere says that files are made for another host: NodeIP need not
	// be an address of this one.
	Elsewhere bool
	// Peer is a host, or host:port, that this node will talk to: for join,
	// the API server. The node's address is the one that packets to it
	// leave from.
	Peer string
	// AddressFlag is the flag to name the address with.
	AddressFlag string
	// PodSubnet and ServiceSubnet hold no node's address. The first service
	// range's family is the family of the address.
	PodSubnet, ServiceSubnet config.CIDRs
}

// Detect finds out what the renderers must know about this host. It changes
// nothing.
func (h *Host) Detect(ctx context.Context, o Options) (config.Facts, error) {
	f := config.Facts{NumCPU: runtime.NumCPU()}

	name, err := os.Hostname()
	if err != nil {
		return f, fmt.Errorf("asking for the host's name: %w", err)
	}
	f.Hostname = strings.ToLower(strings.TrimSpace(name))

	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return f, fmt.Errorf("asking for the size of memory: %w", err)
	}
	f.MemoryBytes = uint64(info.Totalram) * uint64(info.Unit)

	if f.CgroupVersion, err = h.cgroupVersion(); err != nil {
		return f, err
	}
	f.CgroupDriver = h.cgroupDriver(f.CgroupVersion)
	if f.RestrictOOMScoreAdj, err = h.restrictOOMScoreAdj(); err != nil {
		return f, err
	}
	f.ConntrackWritable = h.conntrackWritable()
	if f.SwapOn, err = h.swapOn(); err != nil {
		return f, err
	}
	if f.ResolvConf, f.Nameservers, err = h.resolver(); err != nil {
		return f, err
	}

	defaults, err := defaultRoutes()
	if err != nil {
		return f, err
	}
	f.DefaultRoute = len(defaults) > 0
	address, err := nodeAddress(ctx, o)
	if err != nil {
		return f, err
	}
	f.NodeIP, f.Interface, f.MTU = address.IP.String(), address.Interface, address.MTU
	return f, nil
}

// nodeAddress is the user's choice, or the one towards the peer, or the only
// sensible one.
func nodeAddress(ctx context.Context, o Options) (Address, error) {
	if ip, err := netip.ParseAddr(o.NodeIP); err == nil && o.Elsewhere {
		return Address{IP: ip}, nil
	}
	if o.NodeIP != "" {
		return addressNamed(o.NodeIP, o.AddressFlag)
	}
	for _, list := range []config.CIDRs{o.PodSubnet, o.ServiceSubnet} {
		if list.Invalid() != "" {
			return Address{}, fault.New(fault.Usage, "write it like 10.244.0.0/16", "%q is not an address range", list.Invalid())
		}
	}
	if o.Peer != "" {
		peer, err := resolvePeer(ctx, o.Peer)
		if err != nil {
			return Address{}, err
		}
		// Without a route to it the reason comes better from the attempt to
		// talk to it.
		if ip, err := addressTowards(peer); err == nil && !ip.IsLoopback() {
			return addressNamed(ip.String(), o.AddressFlag)
		}
	}
	candidates, err := Addresses()
	if err != nil {
		return Address{}, err
	}
	if services := o.ServiceSubnet.Prefixes(); len(services) > 0 && services[0].Addr().Is6() {
		candidates = slices.DeleteFunc(candidates, func(a Address) bool { return a.IP.Is4() })
	}
	return ChooseAddress(candidates, o.AddressFlag, slices.Concat(o.PodSubnet.Prefixes(), o.ServiceSubnet.Prefixes())...)
}

// addressNamed finds the interface that carries an address the user named.
func addressNamed(text, flag string) (Address, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return Address{}, fault.New(fault.Usage, "give one of this host's addresses", "reading %s %q: %w", flag, text, err)
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
	var lines strings.Builder
	for _, a := range candidates {
		lines.WriteString("\n  " + a.String())
	}
	return Address{}, fault.New(fault.Usage, "give one of this host's addresses",
		"reading %s: no interface of this host has the address %q; it has:%s", flag, text, lines.String())
}

// resolvePeer turns "host" or "host:port" into an address. Names are looked up
// for a few seconds only: an isolated host's resolver may answer nothing.
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
		return netip.Addr{}, fault.New(fault.Failure, "use its address, or add the name to /etc/hosts", "looking up %q: %w", host, err)
	}
	return ips[0].Unmap(), nil
}

func (h *Host) cgroupVersion() (int, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(h.Path("/sys/fs/cgroup"), &st); err != nil {
		return 0, fault.New(fault.Preflight, "this host must be booted with systemd", "looking at /sys/fs/cgroup: %w", err)
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return 2, nil
	}
	return 1, nil // also the hybrid layout: its controllers are v1's
}

// cgroupDriver is "systemd" where systemd may arrange the cgroups, so that
// they have one owner. In a container with v1 controllers it sees only parts
// of the tree and its slices do not reach every controller: "cgroupfs" there.
func (h *Host) cgroupDriver(version int) string {
	if !h.booted() {
		return "cgroupfs"
	}
	// systemd writes this file when it boots in a container.
	if version == 1 && exists(h.Path("/run/systemd/container")) {
		return "cgroupfs"
	}
	return "systemd"
}

// restrictOOMScoreAdj says whether containers cannot be given a lower OOM
// score than systemd's services have. The kernel wants CAP_SYS_RESOURCE for
// that, and in its first user namespace.
func (h *Host) restrictOOMScoreAdj() (bool, error) {
	status, err := os.ReadFile(h.Path("/proc/1/status"))
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
	uids, err := firstLine(h.Path("/proc/1/uid_map"))
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

// conntrackWritable says whether kube-proxy could set nf_conntrack_max: the
// kernel lets only its first network namespace do that. Writing the value that
// is there tells without a change. Before the module is loaded the file is
// missing; netdev_max_backlog is then another sign of the first namespace.
func (h *Host) conntrackWritable() bool {
	const max = "/proc/sys/net/netfilter/nf_conntrack_max"
	value, err := firstLine(h.Path(max))
	if errors.Is(err, fs.ErrNotExist) {
		var st unix.Statfs_t
		readOnly := unix.Statfs(h.Path("/proc/sys"), &st) != nil || st.Flags&unix.ST_RDONLY != 0
		return !readOnly && exists(h.Path("/proc/sys/net/core/netdev_max_backlog"))
	}
	if err != nil {
		return false
	}
	f, err := os.OpenFile(h.Path(max), os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err == nil
}

func (h *Host) swapOn() (bool, error) {
	data, err := os.ReadFile(h.Path("/proc/swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a kernel without swap
	}
	if err != nil {
		return false, fmt.Errorf("reading /proc/swaps: %w", err)
	}
	// The first line is the table's heading.
	return len(bytes.Split(bytes.TrimSpace(data), []byte("\n"))) > 1, nil
}

// resolver returns the resolver file for pods and the nameservers in it that
// a pod could reach: one at a loopback or link-local address is the host's alone. Behind
// systemd-resolved's stub the real ones are in a file of its own, which
// kubeadm uses too. A host without any such file gives "".
func (h *Host) resolver() (path string, nameservers []string, err error) {
	const resolved, usual = "/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"
	for _, path := range []string{usual, resolved} {
		data, err := os.ReadFile(h.Path(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("reading the resolver's configuration: %w", err)
		}
		listed, usable := readNameservers(data)
		stubOnly := len(listed) > 0 && len(usable) == 0
		if path == usual && stubOnly && exists(h.Path(resolved)) {
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
