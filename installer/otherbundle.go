package installer

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/host"
)

// CheckBundle refuses a host that Airlift installed from another bundle, for an
// upgrade as for a downgrade: binaries would be replaced under what runs, and
// nothing would restart in the order that an upgrade needs. Images do not
// matter: a bundle may bring more of them.
func (n *Node) CheckBundle(ctx context.Context) error {
	var wanted []host.Binary
	entries := map[string]string{} // by path
	for _, e := range n.manifest.Entries {
		if dest := binaryPath(e.Name); dest != "" {
			wanted = append(wanted, host.Binary{Path: dest, SHA256: e.SHA256})
			entries[dest] = e.Name
		}
	}
	others, err := n.Host.OtherBinaries(wanted...)
	if err != nil || len(others) == 0 {
		return err
	}
	var list strings.Builder
	for _, o := range others {
		fmt.Fprintf(&list, "\n  - %s is %s, this bundle has %s", o.Path, n.installedVersion(ctx, o), n.bundleVersion(entries[o.Path]))
	}
	if n.exists(adminConf) || n.exists(kubeletConf) {
		return fault.New(fault.Preflight,
			"run the file that this host was installed with; this command cannot upgrade or downgrade. To install this version instead, remove the node first: ./install reset",
			"this host was installed from another bundle (this one has Kubernetes %s); these binaries differ:%s", n.manifest.KubernetesVersion, &list)
	}
	return fault.New(fault.Preflight,
		"run the file that the installation was begun with, or remove what it left first: ./install reset",
		"an unfinished installation on this host is from another bundle (this one has Kubernetes %s); these binaries differ:%s", n.manifest.KubernetesVersion, &list)
}

// bundleVersion is the version of the component that brought an entry.
func (n *Node) bundleVersion(entry string) string {
	for _, c := range n.manifest.Components {
		if slices.Contains(c.Entries, entry) {
			return c.Version
		}
	}
	return "another"
}

// versionTimeout bounds how long a binary may take to print its version.
const versionTimeout = 5 * time.Second

var versionNumber = regexp.MustCompile(`\bv?[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*`)

// installedVersion is what an installed binary prints for --version, where it
// is known to, and the start of its digest.
func (n *Node) installedVersion(ctx context.Context, o host.OtherBinary) string {
	sum := fmt.Sprintf("sha256 %.12s…", o.SHA256)
	if !o.Complete {
		return "not complete (" + sum + ")"
	}
	if !slices.Contains([]string{"kubelet", "containerd", "runc"}, path.Base(o.Path)) {
		return sum
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, n.Host.Path(o.Path), "--version").Output()
	version := versionNumber.Find(out)
	if err != nil || version == nil {
		return sum
	}
	return fmt.Sprintf("%s (%s)", version, sum)
}
