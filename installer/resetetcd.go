package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// resetEtcdTimeout bounds what reset asks of etcd: it is to end even when the
// rest of the cluster is in a bad way.
const resetEtcdTimeout = 30 * time.Second

// A localEtcd is what this host's static pods say about its own etcd.
type localEtcd struct {
	peerURL, clientURL string
	dataDir            string
	certificates       string // the folder above etcd/ca.crt
}

// findEtcd returns nil where this host has no etcd of its own: a worker, or a
// control plane whose etcd is elsewhere. Its own static pod tells. Join writes
// the API server's before etcd's: there the ledger, which has claimed etcd's
// data directory, tells too. An address of this host tells nothing: an external
// etcd may run on it.
func (n *Node) findEtcd() (*localEtcd, error) {
	flags, volumes, err := n.staticPod("etcd")
	if err != nil {
		return nil, err
	}
	if flags != nil {
		first := func(name string) string { u, _, _ := strings.Cut(flags[name], ","); return u }
		e := &localEtcd{
			peerURL: first("initial-advertise-peer-urls"), clientURL: first("advertise-client-urls"),
			dataDir: volumes["etcd-data"], certificates: path.Dir(path.Dir(flags["trusted-ca-file"])),
		}
		if e.peerURL == "" || e.clientURL == "" || e.dataDir == "" {
			return nil, fmt.Errorf("reading %s: it has no etcd with peer and client URLs and the volume etcd-data", etcdManifest)
		}
		return e, nil
	}
	if flags, _, err = n.staticPod("kube-apiserver"); err != nil || flags == nil {
		return nil, err
	}
	dataDir := n.Host.Claimed(host.EtcdData)
	if dataDir == "" {
		return nil, nil
	}
	self := config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: flags["advertise-address"]}}
	return &localEtcd{
		peerURL: render.EtcdPeerURL(&self), clientURL: render.EtcdClientURL(&self),
		dataDir: dataDir, certificates: path.Dir(path.Dir(flags["etcd-cafile"])),
	}, nil
}

// staticPod reads a component's flags, and its volumes' host paths by name.
// Both are nil where the host has no such pod.
func (n *Node) staticPod(name string) (flags, volumes map[string]string, err error) {
	file := path.Join(config.ManifestsDir, name+".yaml")
	data, err := os.ReadFile(n.Host.Path(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(data, &pod); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", file, err)
	}
	flags, volumes = map[string]string{}, map[string]string{}
	for _, c := range pod.Spec.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if key, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "="); ok && strings.HasPrefix(arg, "-") {
				flags[key] = value
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			volumes[v.Name] = v.HostPath.Path
		}
	}
	return flags, volumes, nil
}

// reachEtcd connects to this host's etcd or, where that does not answer, to
// those that the API server tells of.
func (n *Node) reachEtcd(ctx context.Context, e *localEtcd) (*etcd.Client, error) {
	c, err := n.connectEtcd(ctx, []string{e.clientURL}, e.certificates)
	if err != nil && ctx.Err() == nil {
		if others := n.otherEtcds(ctx, e); len(others) > 0 {
			var more error
			if c, more = n.connectEtcd(ctx, others, e.certificates); more != nil {
				err = fmt.Errorf("%w; nor through the API: %w", err, more)
			} else {
				err = nil
			}
		}
	}
	if err != nil {
		return nil, err
	}
	c.Timeout = resetEtcdTimeout
	return c, nil
}

// otherEtcds asks the API, which another host may still serve.
func (n *Node) otherEtcds(ctx context.Context, e *localEtcd) []string {
	api, err := n.loadClient(n.kubeconfigFile(), "")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	urls, err := api.EtcdEndpoints(ctx, n.report)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(urls, func(u string) bool { return u == e.clientURL })
}

func (n *Node) kubeconfigFile() string {
	if n.Kubeconfig != "" {
		return n.Kubeconfig
	}
	return adminConf
}

// checkEtcdReset refuses a reset that the other control planes would not
// survive.
func (n *Node) checkEtcdReset(ctx context.Context) error {
	_, _, err := n.ownMember(ctx, func(c *etcd.Client, m etcd.Member) error { return c.CheckRemove(ctx, m) })
	if err == nil || ctx.Err() != nil {
		return err
	}
	hint := fault.Hint(err)
	if hint == "" {
		hint = "bring it back (systemctl start kubelet), or go on without asking it: --force; then remove the member on another control plane, etcdctl member remove"
	}
	return fault.Wrap(fmt.Errorf("checking what the reset of this host does to etcd: %w", err), fault.Preflight, hint)
}

// ownMember finds this host's member and does something with it. found is false
// where the host has no etcd or the cluster does not know its member; alone
// says that there is no other.
func (n *Node) ownMember(ctx context.Context, do func(*etcd.Client, etcd.Member) error) (found, alone bool, err error) {
	e, err := n.findEtcd()
	if err != nil || e == nil {
		return false, false, err
	}
	if !n.exists(path.Join(e.certificates, "etcd", "ca.crt")) {
		return false, false, nil // a run that stopped before anything was announced
	}
	c, err := n.reachEtcd(ctx, e)
	if err != nil {
		return false, false, err
	}
	defer c.Close()
	members, err := c.Members(ctx)
	if err != nil {
		return false, false, err
	}
	m, found := etcd.Find(members, e.peerURL)
	if !found || len(members) == 1 {
		return found, found, nil
	}
	return true, false, do(c, m)
}

// removeEtcdMember takes this host's member out of the cluster. The last one
// has nobody to tell. A forced reset goes on without what cannot be had.
func (n *Node) removeEtcdMember(ctx context.Context) error {
	_, alone, err := n.ownMember(ctx, func(c *etcd.Client, m etcd.Member) error {
		if err := c.CheckRemove(ctx, m); err != nil {
			return err
		}
		_, err := c.Remove(ctx, m)
		if err == nil {
			n.Console.Note("etcd goes on without %s", m)
		}
		return err
	})
	switch {
	case alone:
		n.lastControlPlane = true
		n.Console.Note("this is the cluster's last etcd member: the cluster ends with it")
	case err != nil && ctx.Err() == nil && n.Resetting.Force:
		n.Console.Warn("etcd's member stays in the cluster, remove it there (etcdctl member remove): %s", err)
		return nil
	}
	return err
}

// nodeName is the name under which this host is known to its cluster, "" where
// it is not.
func (n *Node) nodeName() string { return pki.NodeName(n.root()) }
