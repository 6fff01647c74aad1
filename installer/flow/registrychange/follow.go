// Package registrychange adds the embedded registry to a running cluster, shows it and removes it. It also lets each node
// follow the cluster: a timer runs that every minute.
package registrychange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/registry/hosts"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A Follower lets one node follow the embedded registry of its cluster, with the permissions of its kubelet.
type Follower struct {
	Root string // of the host: "/"
	// Log gets a line for each change, and none without a change.
	Log func(format string, args ...any)

	// Use, if not nil, is called with each host that it may change.
	Use func(*host.Host)

	connect func(*host.Host) (*cluster.Client, error) // replaces the client in tests
}

// Run lets the node follow once. If the API does not answer, or another installer is running on the host, it changes
// nothing.
func (f *Follower) Run(ctx context.Context) error {
	h, err := host.Open(f.Root)
	if err != nil {
		return err
	}
	m := f.machine(h)
	name := pki.NodeName(m.Files())
	if name == "" {
		return fault.New(fault.Preflight, "this host is not a node of a cluster: %s does not have a node's name", node.KubeletConf).Hint("run it on a node of the cluster")
	}
	client, err := f.client(h)
	if err != nil {
		return err
	}
	now, servers, err := ask(ctx, client)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	switch {
	case now == nil: // a user may have deleted it: the kept files stay
		return fault.New(fault.Failure, "nothing was changed: the cluster has no ConfigMap kube-system/%s", config.RegistryConfigMap).
			Hint("on each control plane: ./install registry enable, or ./install registry disable")
	case now.Used:
		err = f.follow(ctx, m, client, name, now, servers)
	default:
		err = f.leave(ctx, client, name)
	}
	if errors.Is(err, host.ErrLocked) {
		f.Log("not now: another installer is running on this host")
		return nil
	}
	return err
}

func (f *Follower) client(h *host.Host) (*cluster.Client, error) {
	if f.connect != nil {
		return f.connect(h)
	}
	return node.LoadClient(h, node.KubeletConf, "", 0)
}

// apiTimeout limits the requests to an API server. The next run asks again.
const apiTimeout = 20 * time.Second

// ask reads what the control planes keep, and where they are. Both are empty if the cluster has no embedded registry.
func ask(ctx context.Context, client *cluster.Client) (now *config.EmbeddedRegistry, servers []netip.AddrPort, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if now, err = client.Registry(ctx); err != nil || now == nil || !now.Used {
		return now, nil, err
	}
	servers, err = client.APIServers(ctx)
	if err == nil && len(servers) == 0 {
		err = errors.New("no API server has registered itself")
	}
	return now, phases.RegistryAddresses(servers), err
}

func (f *Follower) machine(h *host.Host) *node.Machine {
	return node.NewMachine(h, &workflow.Console{Out: io.Discard})
}

// follow installs what is missing on the node, and then records that the node follows.
func (f *Follower) follow(ctx context.Context, m *node.Machine, client *cluster.Client, name string, now *config.EmbeddedRegistry, servers []netip.AddrPort) error {
	if m.Existing.Records().OwnsRuntime() {
		if err := f.configure(ctx, m, name, servers, now.Registries()); err != nil {
			return err
		}
	}
	self, err := client.Node(ctx, name)
	if err != nil {
		return err
	}
	if last := self.Follows; !last.UsesRegistry || last.Registry < now.Generation { // once: a user may unpin or delete them later
		if err := f.pull(ctx, m, now.Images); err != nil { // it has the configuration, which disable must not leave here
			return errors.Join(err, client.NodeObjects().UsesRegistry(ctx, name))
		}
	}
	_, err = client.NodeObjects().Follow(ctx, name, func(f *cluster.Follows) { f.UsesRegistry, f.Registry = true, now.Generation })
	if err != nil {
		return err
	}
	return f.drop(ctx, m, now)
}

// drop removes files of former versions from the list, as an administrator: the last node of an upgrade may be a worker, which
// may not do that.
func (f *Follower) drop(ctx context.Context, m *node.Machine, now *config.EmbeddedRegistry) error {
	if !phases.ServesRegistry(m.Host) || len(now.Superseded(nil)) == 0 {
		return nil
	}
	admin, err := node.LoadClient(m.Host, node.AdminConf, node.OwnAPIServer(m.Host), 0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return phases.DropSuperseded(ctx, m, admin)
}

// nodeOf returns what the files of a running node follow from.
func nodeOf(m *node.Machine, name string, servers []netip.AddrPort) (hosts.Node, error) {
	kubelet, err := node.KubeletConfiguration(m.Host)
	if err != nil {
		return hosts.Node{}, err
	}
	n := hosts.Node{
		Name: name, ControlPlanes: servers, CA: cmp.Or(kubelet.Authentication.X509.ClientCAFile, config.CACertPath), Client: pki.KubeletClientFile(m.Files()),
	}
	if n.Client == "" {
		return n, fault.New(fault.Preflight, "%s refers to no file with the kubelet's certificate and key, with which containerd asks the control planes", node.KubeletConf).
			Hint("let kubelet.conf refer to " + pki.KubeletCertFile(new(config.Config)) + ", which the kubelet renews")
	}
	return n, nil
}

// configure makes containerd's configuration current. It locks the host only if something changes.
func (f *Follower) configure(ctx context.Context, m *node.Machine, name string, servers []netip.AddrPort, registries []string) error {
	n, err := nodeOf(m, name, servers)
	if err != nil {
		return err
	}
	change, err := n.Change(m.Host, registries)
	if err != nil || change.Empty() {
		return err
	}
	if err := n.Check(m.Host); err != nil {
		return err
	}
	return f.locked(func(m *node.Machine) error {
		if change, err = n.Change(m.Host, registries); err != nil {
			return err
		}
		if err := change.Apply(m.Host); err != nil {
			return err
		}
		for _, file := range change.Write {
			f.Log("wrote %s: containerd asks the control planes %s", file.Path, list(servers))
		}
		for _, path := range change.Remove {
			f.Log("removed %s: no kept file has images of this registry", path)
		}
		return ctx.Err()
	})
}

func list(servers []netip.AddrPort) string {
	var texts []string
	for _, a := range servers {
		texts = append(texts, a.Addr().String())
	}
	return strings.Join(texts, ", ")
}

// locked calls do with the host, locked.
func (f *Follower) locked(do func(*node.Machine) error) error {
	h, unlock, err := node.OpenToChange(f.Root)
	if err != nil {
		return err
	}
	defer unlock()
	if f.Use != nil {
		f.Use(h)
	}
	return do(f.machine(h))
}

// pull brings the images that every node is to have to the disk of this one.
func (f *Follower) pull(ctx context.Context, m *node.Machine, images []string) error {
	if len(images) == 0 {
		return nil
	}
	runtime, err := m.NodeRuntime(ctx)
	if err != nil {
		return err
	}
	defer runtime.Close()
	for _, image := range images {
		pulled, err := runtime.Pull(ctx, image)
		if err != nil {
			return err
		}
		if pulled {
			f.Log("pulled and pinned %s", image)
		}
	}
	return nil
}

// leave removes everything of the embedded registry from this node, with the record of what it follows: otherwise, a registry
// that is enabled again would wait for this node, which has no timer any more.
func (f *Follower) leave(ctx context.Context, client *cluster.Client, name string) error {
	return f.locked(func(m *node.Machine) error {
		edited, err := remove(ctx, m)
		if err != nil {
			return err
		}
		for _, file := range edited {
			f.Log("%s", isEdited(file))
		}
		if err := client.NodeObjects().ForgetRegistry(ctx, name); err != nil {
			return err
		}
		f.Log("the cluster has no embedded registry any more: this node has removed its part")
		return m.Host.RemoveTimer(ctx, hosts.Timer)
	})
}

// remove removes containerd's configuration, and on a control plane the service and the kept files. It returns the files of
// the configuration that stay, because someone changed them.
func remove(ctx context.Context, m *node.Machine) (edited []string, err error) {
	change, err := hosts.Node{}.Change(m.Host, nil)
	if err != nil {
		return nil, err
	}
	if err := change.Apply(m.Host); err != nil {
		return nil, err
	}
	m.Changed(!change.Empty())
	return change.Edited, phases.StopRegistry(ctx, m)
}

// isEdited describes a file that stays.
func isEdited(file string) string {
	return fmt.Sprintf("%s stays, because it was changed after Airlift wrote it. It names control planes, which serve no images any more: remove their lines, or the file if it has nothing else: rm -r %s", file, path.Dir(file))
}
