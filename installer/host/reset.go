package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/installer/config"
)

// StopKubelet stops the kubelet, so that it does not start again what reset
// takes away.
func (h *Host) StopKubelet(ctx context.Context) error { return h.Stop(ctx, "kubelet.service") }

// StopRuntime stops containerd where it is ours.
func (h *Host) StopRuntime(ctx context.Context) error {
	if !h.OwnsRuntime() {
		return nil
	}
	return h.Stop(ctx, "containerd.service")
}

// RemoveInterfaces removes the network interfaces of the pod network: the
// bridge with the pods' ends that are still in it, flannel's tunnels and
// kube-proxy's IPVS device.
func (h *Host) RemoveInterfaces(ctx context.Context) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	bridges := map[int]bool{}
	for _, link := range links {
		if link.Attrs().Name == "cni0" {
			bridges[link.Attrs().Index] = true
		}
	}
	var failures []error
	for _, link := range links {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(failures, err)...)
		}
		attrs := link.Attrs()
		podEnd := link.Type() == "veth" && bridges[attrs.MasterIndex]
		if !podEnd && !slices.Contains([]string{"cni0", "flannel.1", "flannel-v6.1", "kube-ipvs0"}, attrs.Name) {
			continue
		}
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			failures = append(failures, fmt.Errorf("removing network interface %s: %w", attrs.Name, err))
		}
	}
	return errors.Join(failures...)
}

// ResetState says where a node's data is.
type ResetState struct {
	CertificatesDir string // "" is kubeadm's place
	EtcdDataDir     string // "" where etcd is not on this host
	// TmpDir also removes /etc/kubernetes/tmp, where kubeadm's upgrades keep
	// copies of manifests and of etcd's data.
	TmpDir bool
}

// RemoveState removes what a node collected while it ran, as `kubeadm reset`
// does, and the runtime's data where that is ours. Folders that may be a mount
// of their own are emptied, not removed.
func (h *Host) RemoveState(ctx context.Context, s ResetState) error {
	if s.CertificatesDir == "" {
		s.CertificatesDir = config.CertificatesDir
	}
	empty := []string{config.ManifestsDir, s.CertificatesDir, config.KubeletDir}
	if s.EtcdDataDir != "" {
		empty = append(empty, s.EtcdDataDir)
	}
	remove := []string{"/var/lib/cni", "/run/flannel"}
	if s.TmpDir {
		remove = append(remove, config.KubernetesDir+"/tmp")
	}
	for _, name := range []string{"admin", "super-admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler"} {
		remove = append(remove, config.KubernetesDir+"/"+name+".conf")
	}
	if h.OwnsRuntime() {
		empty = append(empty, "/var/lib/containerd")
		remove = append(remove, "/run/containerd")
		// containerd makes these, empty, for programs that it may be told to
		// install. Not empty, they are somebody's.
		for _, dir := range []string{"bin", "lib", ""} {
			_ = os.Remove(h.Path("/opt/containerd/" + dir))
		}
	}
	var failures []error
	for _, dir := range empty {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(failures, err)...)
		}
		failures = append(failures, h.emptyDir(dir))
	}
	for _, path := range remove {
		failures = append(failures, h.removeTree(path))
	}
	return errors.Join(failures...)
}

func (h *Host) emptyDir(dir string) error {
	names, err := os.ReadDir(h.Path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("emptying %s: %w", dir, err)
	}
	var failures []error
	for _, e := range names {
		failures = append(failures, h.removeTree(filepath.Join(dir, e.Name())))
	}
	return errors.Join(failures...)
}

// removeTree removes a path with all it holds, unless something is mounted in
// there: that is somebody's data, not ours to delete through a mount.
func (h *Host) removeTree(path string) error {
	real := h.Path(path)
	mounted, err := mountsWithin(real)
	if err != nil {
		return err
	}
	if mounted != "" {
		return fmt.Errorf("removing %s: %s is mounted there", path, mounted)
	}
	if err := os.RemoveAll(real); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

// Installed lists what RemoveInstalled would remove: units, files and programs.
func (h *Host) Installed() []string {
	var names []string
	for _, kind := range []string{kindUnit, kindFile, kindBinary, kindOwned} {
		for _, e := range h.entries(kind) {
			names = append(names, e.Name)
		}
	}
	return names
}

// RemoveInstalled removes what the ledger lists, newest first: units, files,
// programs and folders, and at last the ledger itself. A program that somebody
// replaced is left. A text file that somebody edited goes too, so that it does
// not act on the next installation, but is saved beside its place as
// PATH.airlift-saved. Both are returned in kept. What fails stays in the
// ledger for another try.
func (h *Host) RemoveInstalled(ctx context.Context) (kept []string, err error) {
	var failures []error
	fail := func(err error) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	done := func(e entry, err error) {
		if err == nil {
			err = h.forget(e.Kind, e.Name)
		}
		fail(err)
	}
	newestFirst := func(kind string) []entry {
		list := h.entries(kind)
		slices.Reverse(list)
		return list
	}

	units := newestFirst(kindUnit)
	for _, e := range units {
		done(e, h.DisableNow(ctx, e.Name))
	}
	for _, e := range slices.Concat(newestFirst(kindFile), newestFirst(kindBinary)) {
		if err := os.Remove(tempFile(h.Path(e.Name))); !errors.Is(err, fs.ErrNotExist) {
			fail(err)
		}
	}
	for _, e := range newestFirst(kindFile) {
		note, err := h.putBack(e)
		if note != "" {
			kept = append(kept, note)
		}
		done(e, err)
	}
	for _, e := range newestFirst(kindBinary) {
		note, err := h.removeBinary(e)
		if note != "" {
			kept = append(kept, note)
		}
		done(e, err)
	}
	for _, e := range newestFirst(kindOwned) {
		done(e, h.removeTree(e.Name))
	}
	// Children were made after their parents.
	for _, e := range newestFirst(kindDir) {
		err := os.Remove(h.Path(e.Name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
			err = nil // others use it now, or it is a mount
		}
		done(e, err)
	}
	if len(units) > 0 {
		fail(h.DaemonReload(ctx))
	}
	if len(failures) > 0 {
		return kept, errors.Join(failures...)
	}
	return kept, h.removeLedger()
}

func (h *Host) removeBinary(e entry) (note string, err error) {
	sum, err := digestFile(h.Path(e.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil && !errors.Is(err, errNotRegular) {
		return "", fmt.Errorf("removing %s: %w", e.Name, err)
	}
	if !e.wrote(sum) {
		return e.Name + " was replaced since it was installed; it is left", nil
	}
	if err := os.Remove(h.Path(e.Name)); err != nil {
		return "", fmt.Errorf("removing %s: %w", e.Name, err)
	}
	return "", nil
}

// removeLedger ends the bookkeeping. Only "the runtime is ours" can be left in
// it by now, and its programs and data are gone.
func (h *Host) removeLedger() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.ledger.Entries {
		if e.Kind != kindRuntime {
			return fmt.Errorf("removing the ledger: it still lists the %s %s", e.Kind, e.Name)
		}
	}
	if err := os.RemoveAll(h.Path(StateDir)); err != nil {
		return fmt.Errorf("removing the ledger: %w", err)
	}
	h.ledger, h.unsaved = ledger{Version: ledgerVersion}, false
	return nil
}
