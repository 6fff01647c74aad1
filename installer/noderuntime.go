package installer

import (
	"context"
	"errors"
	"fmt"
	"os"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"airlift/bundle"
	"airlift/childprocess"
	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/status"
)

// isNode reports whether this host is a node of a cluster.
func (m *machine) isNode() bool { return m.exists(kubeletConf) }

// nodeRuntime connects to the containerd that the kubelet of this node uses. If it existed
// before Airlift, names of images are recorded in the ledger before they change.
func (m *machine) nodeRuntime(ctx context.Context) (*store.Store, error) {
	if !m.isNode() {
		return nil, fault.New(fault.Preflight, "run it on a node of the cluster; to make this host a node, use the file that installed the cluster: ./FILE join",
			"this host is not a node of a cluster: %s does not exist", kubeletConf)
	}
	if os.Geteuid() != 0 {
		return nil, fault.New(fault.Preflight, "run it with sudo or as root", "[ERROR IsPrivilegedUser]: only root can connect to the container runtime")
	}
	socket, err := m.kubeletSocket()
	if err != nil {
		return nil, err
	}
	if !m.exists(socket) {
		return nil, fault.New(fault.Preflight, "start it: systemctl start containerd; its log: journalctl -u containerd -e",
			"the container runtime of this node does not run: %s does not exist", socket)
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	s, err := store.Connect(ctx, socket)
	if other := (*store.NotContainerdError)(nil); errors.As(err, &other) {
		return nil, fault.Wrap(err, fault.Preflight, "import the images with a tool of "+other.Name)
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("using the container runtime of this node: %w", err), fault.Preflight, "")
	}
	if !m.host.OwnsRuntime() {
		s.BeforeNaming(m.recordNames(socket))
	}
	return s, nil
}

// needsLedger refuses a node that Airlift did not install. A ledger with nothing but images
// would make init and reset treat such a node as Airlift's.
func (m *machine) needsLedger() error {
	if m.host.Used() {
		return nil
	}
	return fault.New(fault.Preflight, "use containerd's own command there: ctr --namespace k8s.io images import",
		"Airlift did not install this node: it has no ledger, in which changes are recorded for reset")
}

// kubeletSocket returns the path of the socket that the kubelet's flags or its configuration
// name. Flags precede the configuration.
func (m *machine) kubeletSocket() (string, error) { return status.RuntimeSocket(m.host) }

// optional reads a file of the host. A file that does not exist is empty.
func (m *machine) optional(path string) ([]byte, error) {
	data, err := os.ReadFile(m.host.Path(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// kubeletVersion returns the version of the installed kubelet, or "" if it does not print one.
func (m *machine) kubeletVersion(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := childprocess.Command(ctx, m.host.Path(binaryPath(bundle.BinDir+"kubelet")), "--version").Output()
	if err != nil {
		return ""
	}
	return string(versionNumber.Find(out))
}

// sameMinor reports whether two Kubernetes versions have the same minor version.
func sameMinor(a, b string) bool {
	one, err := utilversion.ParseGeneric(a)
	if err != nil {
		return false
	}
	two, err := utilversion.ParseGeneric(b)
	return err == nil && one.Major() == two.Major() && one.Minor() == two.Minor()
}
