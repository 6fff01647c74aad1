// Package hosts computes the files with which containerd of a node asks the control planes for images: one for each
// registry in the names of the images that they keep.
package hosts

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
)

// A Node is what the files of one node follow from.
type Node struct {
	Name string
	// ControlPlanes are the addresses of their registries.
	ControlPlanes []netip.AddrPort
	// CA is the file with the cluster's CA, and Client the file with the kubelet's certificate and key. containerd reads them
	// at each pull, so they may change later.
	CA, Client string
}

// What marks the parts of a file that Airlift writes.
const (
	alone = "# Airlift writes this file for the embedded registry of the cluster: containerd asks the control planes\n" +
		"# for these images. See ./install registry status.\n"
	copied = "# Airlift writes this file: what _default/hosts.toml has, and then the embedded registry of the cluster.\n"
	added  = "\n# The embedded registry of the cluster, which Airlift adds. See ./install registry status.\n"
)

// order returns the control planes in the order in which this node asks them. The first one follows from the sum of the bytes of
// the node's name: so nodes whose names differ only in a number are spread evenly.
func (n Node) order() []netip.AddrPort {
	list := slices.Clone(n.ControlPlanes)
	slices.SortFunc(list, netip.AddrPort.Compare)
	list = slices.Compact(list)
	sum := 0
	for _, b := range []byte(n.Name) {
		sum += int(b)
	}
	first := sum % len(list)
	return slices.Concat(list[first:], list[:first])
}

// access returns the keys with which containerd connects to one control plane. A dead one costs at most a second for each
// request, and it never gets a request to push.
func (n Node) access(indent string) string {
	return fmt.Sprintf("%[1]scapabilities = [\"pull\", \"resolve\"]\n%[1]sca = %[2]q\n%[1]sclient = %[3]q\n%[1]sdial_timeout = \"1s\"\n", indent, n.CA, n.Client)
}

// text returns the contents of hosts.toml. containerd asks the hosts in their order, and then the server, which it always has:
// so the last control plane is the server, with its own keys at the root. Otherwise containerd would ask the registry
// itself, which an isolated host cannot reach, and its error would name only that.
//
// With a site's own configuration of the registry, before, the control planes come after the site's mirrors, and the server
// stays the site's: a site that configures a registry can reach it.
func (n Node) text(before []byte) []byte {
	list := n.order()
	var b bytes.Buffer
	if before == nil {
		last := list[len(list)-1]
		list = list[:len(list)-1]
		fmt.Fprintf(&b, "%sserver = \"https://%s\"\n%s", alone, last, n.access(""))
	} else {
		b.Write(bytes.TrimRight(before, "\n"))
		b.WriteString("\n" + added)
	}
	for _, a := range list {
		fmt.Fprintf(&b, "\n[host.\"https://%s\"]\n%s", a, n.access("  "))
	}
	return b.Bytes()
}

// ownPart returns the site's part of a file that Airlift wrote; nil if it has none.
func ownPart(text []byte) []byte {
	if bytes.HasPrefix(text, []byte(alone)) || bytes.HasPrefix(text, []byte(copied)) {
		return nil
	}
	before, _, _ := bytes.Cut(text, []byte(added))
	return before
}

// Keep returns the configuration that init and join write for a registry, with what the present file has of the embedded
// registry.
func Keep(configured, present []byte) []byte {
	if bytes.HasPrefix(present, []byte(alone)) || bytes.HasPrefix(present, []byte(copied)) {
		return configured
	}
	_, rest, ok := bytes.Cut(present, []byte(added))
	if !ok {
		return configured
	}
	return slices.Concat(bytes.TrimRight(configured, "\n"), []byte("\n"+added), rest)
}
