package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"airlift/images/store"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// NodeRuntime connects to the containerd that the kubelet of this node uses. If it existed
// before Airlift, names of images are recorded in the ledger before they change.
func (m *Machine) NodeRuntime(ctx context.Context) (*store.Store, error) {
	if !m.Exists(KubeletConf) {
		return nil, fault.New(fault.Preflight, "this host is not a node of a cluster: %s does not exist", KubeletConf).
			Hint("run it on a node of the cluster; to make this host a node, use the file that installed the cluster: ./FILE join")
	}
	if os.Geteuid() != 0 {
		return nil, fault.New(fault.Preflight, "[ERROR IsPrivilegedUser]: only root can connect to the container runtime").Hint("run it with sudo or as root")
	}
	socket, err := RuntimeSocket(m.Host)
	if err != nil {
		return nil, err
	}
	if !m.Exists(socket) {
		return nil, fault.New(fault.Preflight, "the container runtime of this node does not run: %s does not exist", socket).
			Hint("start it: systemctl start containerd; its log: journalctl -u containerd -e")
	}
	ctx, cancel := context.WithTimeout(ctx, RuntimeTimeout)
	defer cancel()
	s, err := store.Connect(ctx, socket)
	if other := (*store.NotContainerdError)(nil); errors.As(err, &other) {
		return nil, fault.Wrap(err, fault.Preflight, "import the images with a tool of "+other.Name)
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("using the container runtime of this node: %w", err), fault.Preflight, "")
	}
	if !m.Host.Records().OwnsRuntime() {
		s.BeforeNaming(m.RecordNames(socket))
	}
	return s, nil
}

// NeedsLedger refuses a node that Airlift did not install. A ledger with only images would make
// init and reset treat such a node as Airlift's.
func (m *Machine) NeedsLedger() error {
	return Managed(m.Host, "; or use containerd's own command: ctr --namespace k8s.io images import")
}

// Optional reads a file of the host. A file that does not exist is empty.
func (m *Machine) Optional(path string) ([]byte, error) { return m.Host.ReadIfExists(path) }

// Present reads a file of the host, also in a dry run. A file that does not exist is empty.
func (m *Machine) Present(path string) ([]byte, error) { return m.Existing.ReadIfExists(path) }

// A DifferingFile is a file that this host is to have, and that it has otherwise.
type DifferingFile struct {
	pki.File
	Now []byte // nil if it does not exist
}

// Differing returns the files that this host has otherwise, also in a dry run.
func (m *Machine) Differing(files ...pki.File) (list []DifferingFile, err error) {
	for _, f := range files {
		now, err := m.Present(f.Path)
		if err != nil {
			return nil, err
		}
		if now == nil || !bytes.Equal(now, f.Data) {
			list = append(list, DifferingFile{f, now})
		}
	}
	return list, nil
}

// SameMinor reports whether two Kubernetes versions have the same minor version.
func SameMinor(a, b string) bool {
	one, err := utilversion.ParseGeneric(a)
	if err != nil {
		return false
	}
	two, err := utilversion.ParseGeneric(b)
	return err == nil && one.Major() == two.Major() && one.Minor() == two.Minor()
}
