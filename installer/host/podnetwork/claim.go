// Package podnetwork claims what flannel, CNI plugins and kube-proxy create in the kernel and below
// /var/lib/cni, and removes it: interfaces, iptables and nftables rules, addresses.
package podnetwork

import (
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/render"
	"airlift/internal/fault"
)

const hostPorts = "CNI-HOSTPORT-"

// lock is the name of the file in the directory of a network that host-local locks.
const lock = "lock"

// State directories of CNI: host-local's addresses by network, libcni's results.
const (
	NetworksDir = "/var/lib/cni/networks"
	cniResults  = "/var/lib/cni/results"
)

// Interfaces are the network interfaces that a node's components create.
func Interfaces(cfg *config.Config) []string {
	var names []string
	if cfg.CNI == "flannel" {
		names = append(names, "cni0", "flannel.1", "flannel-v6.1")
	}
	if !cfg.Proxy.Disabled {
		names = append(names, "kube-ipvs0")
	}
	return names
}

// Claimable returns an error for each part of a pod network that exists
// on this host and is not Airlift's. It changes nothing.
func Claimable(h *host.Host, cfg *config.Config) []error {
	var problems []error
	for _, name := range Interfaces(cfg) {
		if _, ok := h.Records().Find(ledger.Interface, name); ok {
			continue
		}
		if _, err := netlink.LinkByName(name); err == nil {
			problems = append(problems, fault.New(fault.Preflight, "the network interface %s exists and Airlift did not create it", name).
				Hint("if nothing uses it: ip link delete "+name))
		} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
			problems = append(problems, fmt.Errorf("looking for network interface %s: %w", name, err))
		}
	}
	if _, ok := h.Records().Find(ledger.Network, render.CNINetwork); ok || cfg.CNI != "flannel" {
		return problems
	}
	problems = append(problems, earlierCNI(h)...)
	dir := filepath.Join(NetworksDir, render.CNINetwork)
	if names, err := os.ReadDir(h.Path(dir)); err == nil && len(names) > 0 {
		problems = append(problems, fault.New(fault.Preflight, "%s contains addresses of another CNI network named %s", dir, render.CNINetwork).
			Hint("if no container has an address from it: rm -r "+dir))
	}
	return problems
}

// earlierCNI returns an error for each CNI configuration that the container runtime
// would use instead of flannel's: it uses the first file in the directory.
func earlierCNI(h *host.Host) []error {
	var problems []error
	files, _ := os.ReadDir(h.Path(config.CNIConfDir))
	for _, f := range files {
		if f.Name() >= filepath.Base(render.CNIConflistPath) || !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(f.Name())) {
			continue
		}
		path := filepath.Join(config.CNIConfDir, f.Name())
		problems = append(problems, fault.New(fault.Preflight, "%s configures another pod network: the container runtime would use it instead of %s", path, filepath.Base(render.CNIConflistPath)).
			Hint("if nothing uses it: mv "+path+" "+path+".before"))
	}
	return problems
}

// Claim records what flannel, the CNI plugins and kube-proxy are about to
// create as Airlift's, except what exists already.
func Claim(h *host.Host, cfg *config.Config) error {
	for _, name := range Interfaces(cfg) {
		if _, err := netlink.LinkByName(name); !errors.As(err, &netlink.LinkNotFoundError{}) {
			continue
		}
		if err := h.Records().Record(ledger.Entry{Kind: ledger.Interface, Name: name}); err != nil {
			return err
		}
	}
	// All CNI plugins share these directories. Reset keeps them if others use them.
	if err := h.MkdirAll(NetworksDir, 0o755); err != nil {
		return err
	}
	if err := h.MkdirAll(cniResults, 0o700); err != nil {
		return err
	}
	if cfg.CNI != "flannel" {
		return nil
	}
	if names, err := os.ReadDir(h.Path(filepath.Join(NetworksDir, render.CNINetwork))); errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
		if err := h.Records().Record(ledger.Entry{Kind: ledger.Network, Name: render.CNINetwork}); err != nil {
			return err
		}
	}
	if err := createLock(h); err != nil {
		return err
	}
	// Without nftables access, the chains are not claimed.
	if there, err := hostPortsExist(); err != nil || there {
		return nil
	}
	return h.Records().Record(ledger.Entry{Kind: ledger.Chains, Name: hostPorts})
}

// createLock creates the file that host-local locks, if the network is Airlift's: the plugin would create it with the mode 0750, and never changes a file
// that exists (containernetworking/plugins, backend/disk/lock.go). One that exists stays: a plugin may have locked it. Reset removes it with its directory.
func createLock(h *host.Host) error {
	dir := filepath.Join(NetworksDir, render.CNINetwork)
	if _, ours := h.Records().Find(ledger.Network, render.CNINetwork); !ours || filesystem.Exists(h.Path(filepath.Join(dir, lock))) {
		return nil
	}
	if err := h.MakeDir(dir, 0o755); err != nil {
		return err
	}
	return h.RenewFile(filepath.Join(dir, lock), nil, 0o600)
}

// hostPortsExist reports whether the portmap plugin's chains or table exist.
func hostPortsExist() (bool, error) {
	chains, err := listChains()
	return slices.ContainsFunc(chains, func(c *nftables.Chain) bool {
		return strings.HasPrefix(c.Name, hostPorts) || c.Table.Name == hostPortTable
	}), err
}

func listChains() ([]*nftables.Chain, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("opening nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("listing nftables chains: %w", err)
	}
	return chains, nil
}

// Leftovers returns the names of chains that only a node has.
func Leftovers() (names []string, err error) {
	chains, err := listChains()
	for _, name := range []string{"KUBE-SERVICES", "KUBE-FORWARD", "KUBE-MARK-MASQ", "FLANNEL-POSTRTG", "FLANNEL-FWD"} {
		if slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return c.Name == name }) {
			names = append(names, name)
		}
	}
	return names, err
}

// An attachment is libcni's record of one container in one network.
type attachment struct {
	Kind      string `json:"kind"`
	Container string `json:"containerId"`
	Network   string `json:"networkName"`
	NetNS     string `json:"netns"`
	File      string
}

// Attachments reads libcni's records.
func Attachments(h *host.Host) ([]attachment, error) {
	files, err := os.ReadDir(h.Path(cniResults))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", cniResults, err)
	}
	var list []attachment
	for _, f := range files {
		path := filepath.Join(cniResults, f.Name())
		data, err := os.ReadFile(h.Path(path))
		var a attachment
		if err != nil || json.Unmarshal(data, &a) != nil || a.Kind != "cniCacheV1" {
			continue // its owner is unknown
		}
		a.File = path
		list = append(list, a)
	}
	return list, nil
}

// Containers returns the IDs of the containers that have, or had, an address in
// Airlift's networks.
func Containers(h *host.Host) (map[string]bool, error) {
	ids := map[string]bool{}
	list, err := Attachments(h)
	if err != nil {
		return nil, err
	}
	for _, e := range h.Records().Entries(ledger.Network) {
		for _, a := range list {
			if a.Network == e.Name {
				ids[a.Container] = true
			}
		}
		// host-local writes a file for each address: the ID, then the interface.
		leases, err := os.ReadDir(h.Path(filepath.Join(NetworksDir, e.Name)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the addresses of network %s: %w", e.Name, err)
		}
		for _, l := range leases {
			if l.Name() == lock || strings.HasPrefix(l.Name(), "last_reserved_ip") {
				continue
			}
			if id, err := filesystem.FirstLine(h.Path(filepath.Join(NetworksDir, e.Name, l.Name()))); err == nil && id != "" {
				ids[id] = true
			}
		}
	}
	return ids, nil
}

// chainName is the name that CNI plugins give a container's chain
// (containernetworking/plugins, pkg/utils).
func chainName(prefix, network, id string) string {
	return fmt.Sprintf("%s%x", prefix, sha512.Sum512([]byte(network+id)))[:28]
}

// RemoveState removes the state of CNI plugins and libcni for a network.
func RemoveState(h *host.Host, e ledger.Entry) error {
	ids, err := Containers(h)
	if err != nil {
		return err
	}
	list, err := Attachments(h)
	if err != nil {
		return err
	}
	var failures []error
	for _, a := range list {
		// A pod's loopback interface is recorded as a separate network.
		if a.Network == e.Name || ids[a.Container] {
			failures = append(failures, h.RemoveTree(a.File))
		}
	}
	failures = append(failures, h.RemoveTree(filepath.Join(NetworksDir, e.Name)))
	return errors.Join(failures...)
}
