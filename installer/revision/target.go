package revision

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"airlift/images/store"
	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/kubeletcheck"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/upgradecheck"
	"airlift/internal/fault"
)

// VersionTarget reads what is known without this node's new configuration: the versions, and the
// state of the cluster. The client must be connected.
func (r *Revision) VersionTarget(ctx context.Context, command upgradecheck.Command, c *config.Config, from config.Cluster) (*upgradecheck.Target, error) {
	found, err := inventory.Read(ctx, r.API.Client.API)
	if err != nil {
		return nil, err
	}
	old := *c
	old.Cluster = from
	old.KubernetesVersion = r.Bundle.KubernetesVersion()
	return &upgradecheck.Target{
		Command: command, From: from.KubernetesVersion, To: r.Bundle.KubernetesVersion(), Drain: r.Options.Drain,
		Platform: r.Bundle.Manifest.Platform, HostPlatform: "linux/" + runtime.GOARCH,
		Root: r.Existing.Path("/"), Files: r.Files(), NodeName: c.NodeRegistration.Name, ControlPlane: r.IsControlPlane(),
		Config: &old, Cluster: found, Now: time.Now(),
	}, nil
}

// Target reads all that the checks of an upgrade look at. The facts must be known. It changes nothing.
func (r *Revision) Target(ctx context.Context, command upgradecheck.Command) (*upgradecheck.Target, error) {
	t, err := r.VersionTarget(ctx, command, r.Config, r.Stored.Cluster)
	if err != nil {
		return nil, err
	}
	t.Kubelet = r.Self.KubeletVersion
	t.Config, t.Continues = r.Config, r.Unfinished()
	if r.Record != nil {
		if t.Kept, err = r.Record.Kept(r.Existing).Paths(); err != nil {
			return nil, err
		}
	}
	t.MissingImages = r.Plan.MissingImages(r.Config)
	if a, b, ok := minorsOf(t.From, t.To); ok && b > a && command != upgradecheck.Node {
		if t.Uses, err = inventory.APIUses(ctx, r.API.Client, a, b); err != nil {
			return nil, err
		}
	}
	if t.ControlPlane && r.Config.Etcd.External == nil {
		t.Etcd = r.etcdState(ctx)
	}
	if t.Certificates, err = r.certificates(); err != nil {
		return nil, err
	}
	if t.KubeletProblems, err = r.kubeletProblems(); err != nil {
		return nil, err
	}
	images, err := r.missingImageSpace(ctx)
	t.Disk = []preflight.Space{{Path: host.UpgradeDir, Bytes: phases.SmallBytes, Files: 50}, images}
	return t, err
}

// minorsOf returns the minor versions of two versions.
func minorsOf(from, to string) (a, b int, ok bool) {
	one, other := config.Cluster{KubernetesVersion: from}, config.Cluster{KubernetesVersion: to}
	a, b = one.Minor(), other.Minor()
	return a, b, a > 0 && b > 0
}

// etcdState reads the state of all members of the stacked etcd.
func (r *Revision) etcdState(ctx context.Context) *upgradecheck.Etcd {
	state := &upgradecheck.Etcd{}
	e, err := node.FindEtcd(r.Existing)
	if err == nil && e == nil {
		err = errors.New("this host has no etcd")
	}
	if err != nil {
		state.Err = err
		return state
	}
	// The directory of a dry run has no certificates.
	c, err := node.ConnectEtcd(ctx, r.Existing, r.Report, []string{e.ClientURL}, e.Certificates, node.ProbeTimeout)
	if err != nil {
		state.Err = err
		return state
	}
	defer c.Close()
	state.Members, _, state.Err = c.Status(ctx)
	for _, m := range state.Members {
		if m.HasPeer(e.PeerURL) {
			state.Own = m.ID
		}
	}
	return state
}

// certificates lists the certificates of this host with their CAs, the kubelet's included.
func (r *Revision) certificates() (list []pki.Expiration, err error) {
	certs, authorities, err := pki.Expirations(r.Config, r.Files())
	if err != nil {
		return nil, fault.Wrap(err, fault.Preflight, "./install certs check-expiration")
	}
	if r.IsControlPlane() {
		list = certs
	}
	list = append(list, authorities...)
	file := pki.KubeletCertFile(r.Config)
	client := pki.Expiration{Name: path.Base(node.KubeletConf), File: file, CA: "ca", External: true}
	data, err := fs.ReadFile(r.Files(), strings.TrimPrefix(file, "/"))
	if err != nil {
		return list, nil // as with a client certificate in kubelet.conf itself
	}
	if certs, err := pki.ParseCertificates(data); err == nil {
		client.NotAfter = certs[0].NotAfter.UTC()
		list = append(list, client)
	}
	return list, nil
}

// kubeletProblems applies the new kubelet's rules to its configuration and flags.
func (r *Revision) kubeletProblems() ([]kubeletcheck.Problem, error) {
	files, err := r.KubeletFiles()
	if err != nil {
		return nil, err
	}
	env, err := r.Present(config.KubeletFlagsFile)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Path == config.KubeletFlagsFile {
			env = f.Data
		}
	}
	own, err := r.Present(preflight.DefaultKubelet)
	if err != nil {
		return nil, err
	}
	flags := slices.DeleteFunc(preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", env), func(a config.Arg) bool {
		return a.Name == "pod-infra-container-image" // set by kubeadm
	})
	extra := preflight.KubeletFlags("KUBELET_EXTRA_ARGS", own)
	if r.Adopted != nil { // also from drop-ins that stay
		if extra, err = r.Adopted.Input.ExtraFlags(); err != nil {
			return nil, err
		}
	}
	flags = append(flags, extra...)
	return kubeletcheck.Check(kubeletcheck.Input{
		Kubernetes: r.Bundle.KubernetesVersion(), From: r.Self.KubeletVersion, Config: files[0].Data, Flags: flags,
		Root: os.DirFS(r.Existing.Path("/")), CPUs: r.Config.Facts.NumCPU, MemoryBytes: r.Config.Facts.MemoryBytes,
	}), nil
}

// missingImageSpace returns the space for the images that the container runtime of this node does not
// have. Without an answer of the runtime, it has none of them.
func (r *Revision) missingImageSpace(ctx context.Context) (preflight.Space, error) {
	images := r.Plan.Images()
	containerd, err := store.Connect(ctx, strings.TrimPrefix(r.Config.NodeRegistration.CRISocket, "unix://"))
	if err != nil {
		return phases.LayerSpace(node.ContainerdDir, images), nil
	}
	defer containerd.Close()
	info, err := containerd.Info(ctx)
	if err != nil {
		return preflight.Space{}, err
	}
	images, err = containerd.Missing(ctx, images)
	return phases.LayerSpace(cmp.Or(info.ImageDir, node.ContainerdDir), images), err
}
