package upgrade

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
	"airlift/installer/cluster/facts"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	kubeletrules "airlift/installer/kubelet"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/registry"
	"airlift/installer/upgradecheck"
	"airlift/internal/fault"
)

// checks are the checks before an upgrade.
type checks struct {
	node     *phases.Node
	api      *phases.API
	options  Options
	bundle   *payload.Bundle
	facts    *knowledge
	record   *record
	binaries *binaries
	kubelet  *kubelet
	backups  *backups
	keeper   *keeper
}

// run runs the checks that precede an upgrade. It changes nothing.
func (k *checks) run(ctx context.Context, t *upgradecheck.Target) (preflight.Report, error) {
	return upgradecheck.Run(ctx, t, k.options.IgnorePreflightErrors)
}

// versionTarget reads what is known without this node's new configuration: the versions, and the
// state of the cluster. The client must be connected.
func (k *checks) versionTarget(ctx context.Context, command upgradecheck.Command, c *config.Config, from config.Cluster) (*upgradecheck.Target, error) {
	found, err := facts.Read(ctx, k.api.Client.API)
	if err != nil {
		return nil, err
	}
	old := *c
	old.Cluster = from
	old.KubernetesVersion = k.bundle.KubernetesVersion()
	return &upgradecheck.Target{
		Command: command, From: from.KubernetesVersion, To: k.bundle.KubernetesVersion(), Drain: k.options.Drain,
		Platform: k.bundle.Manifest.Platform, HostPlatform: "linux/" + runtime.GOARCH,
		Root: k.node.Existing.Path("/"), Files: k.node.Files(), NodeName: c.NodeRegistration.Name, ControlPlane: k.node.IsControlPlane(),
		Config: &old, Cluster: found, Now: time.Now(),
	}, nil
}

// target reads all that the checks of an upgrade look at. The facts must be known. It changes nothing.
func (k *checks) target(ctx context.Context, command upgradecheck.Command) (*upgradecheck.Target, error) {
	t, err := k.versionTarget(ctx, command, k.node.Config, k.facts.stored.Cluster)
	if err != nil {
		return nil, err
	}
	t.Kubelet = k.facts.self.KubeletVersion
	t.Config, t.Continues = k.node.Config, k.record.unfinished()
	if k.record.state != nil {
		if t.Kept, err = k.record.state.Kept(k.node.Existing).Paths(); err != nil {
			return nil, err
		}
	}
	t.MissingImages = k.node.Plan.MissingImages(k.node.Config)
	if a, b, ok := minorsOf(t.From, t.To); ok && b > a && command != upgradecheck.Node {
		if t.Uses, err = facts.APIUses(ctx, k.api.Client, a, b); err != nil {
			return nil, err
		}
	}
	if t.ControlPlane && k.node.Config.Etcd.External == nil {
		t.Etcd = k.etcdState(ctx)
	}
	if t.Certificates, err = k.certificates(); err != nil {
		return nil, err
	}
	if t.KubeletProblems, err = k.kubeletProblems(); err != nil {
		return nil, err
	}
	t.Disk, err = k.space(ctx, t.Etcd)
	return t, err
}

// minorsOf returns the minor versions of two versions.
func minorsOf(from, to string) (a, b int, ok bool) {
	one, other := config.Cluster{KubernetesVersion: from}, config.Cluster{KubernetesVersion: to}
	a, b = one.Minor(), other.Minor()
	return a, b, a > 0 && b > 0
}

// etcdState reads the state of all members of the stacked etcd.
func (k *checks) etcdState(ctx context.Context) *upgradecheck.Etcd {
	state := &upgradecheck.Etcd{}
	e, err := node.FindEtcd(k.node.Existing)
	if err == nil && e == nil {
		err = errors.New("this host has no etcd")
	}
	if err != nil {
		state.Err = err
		return state
	}
	reader := *k.node.Machine
	reader.Host = k.node.Existing // a dry run has no certificates
	c, err := node.ConnectEtcd(ctx, &reader, []string{e.ClientURL}, e.Certificates, node.ProbeTimeout)
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
func (k *checks) certificates() (list []pki.Expiration, err error) {
	certs, authorities, err := pki.Expirations(k.node.Config, k.node.Files())
	if err != nil {
		return nil, fault.Wrap(err, fault.Preflight, "./install certs check-expiration")
	}
	if k.node.IsControlPlane() {
		list = certs
	}
	list = append(list, authorities...)
	file := pki.KubeletCertFile(k.node.Config)
	client := pki.Expiration{Name: path.Base(node.KubeletConf), File: file, CA: "ca", External: true}
	data, err := fs.ReadFile(k.node.Files(), strings.TrimPrefix(file, "/"))
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
func (k *checks) kubeletProblems() ([]kubeletrules.Problem, error) {
	files, err := k.kubelet.files()
	if err != nil {
		return nil, err
	}
	env, err := k.node.Present(config.KubeletFlagsFile)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Path == config.KubeletFlagsFile {
			env = f.Data
		}
	}
	own, err := k.node.Present(preflight.DefaultKubelet)
	if err != nil {
		return nil, err
	}
	flags := slices.DeleteFunc(preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", env), func(a config.Arg) bool {
		return a.Name == "pod-infra-container-image" // set by kubeadm
	})
	extra := preflight.KubeletFlags("KUBELET_EXTRA_ARGS", own)
	if k.kubelet.adopted != nil { // also from drop-ins that stay
		if extra, err = k.kubelet.adopted.Input.ExtraFlags(); err != nil {
			return nil, err
		}
	}
	flags = append(flags, extra...)
	return kubeletrules.Check(kubeletrules.Input{
		Kubernetes: k.bundle.KubernetesVersion(), From: k.facts.self.KubeletVersion, Config: files[0].Data, Flags: flags,
		Root: os.DirFS(k.node.Existing.Path("/")), CPUs: k.node.Config.Facts.NumCPU, MemoryBytes: k.node.Config.Facts.MemoryBytes,
	}), nil
}

// space returns how much the upgrade of this node writes: the missing images, the new
// binaries and copies of the previous ones, and a backup with a snapshot of etcd.
func (k *checks) space(ctx context.Context, e *upgradecheck.Etcd) ([]preflight.Space, error) {
	state := preflight.Space{Path: host.UpgradeDir, Bytes: phases.SmallBytes, Files: 50}
	pending, err := k.binaries.pending(all)
	if err != nil {
		return nil, err
	}
	for _, b := range pending {
		state.Bytes += 2 * uint64(b.Size) // staged, and the previous one
		state.Files += 2
		if k.node.Existing.Records().Adopted() != nil {
			state.Bytes += uint64(b.Size) // the original, for reset
		}
	}
	stub, err := k.binaries.stub(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range stub.Binaries {
		state.Bytes += uint64(b.Size) // the previous one
	}
	list := phases.Space(desired.List{Binaries: append(pending, stub.Binaries...)}, all)
	saves, err := k.backups.needed()
	if err != nil {
		return nil, err
	}
	if e != nil && saves && !k.options.reconfigures {
		for _, m := range e.Members {
			if m.Name == k.node.Config.NodeRegistration.Name {
				state.Bytes += uint64(m.DBSize) // the snapshot, until it is in the backup
				list = append(list, preflight.Space{Path: host.UpgradeBackups, Bytes: uint64(m.DBSize) + phases.SmallBytes, Files: 1})
			}
		}
	}
	if k.keeper.serves() && !k.options.reconfigures {
		kept := config.EmbeddedRegistry{Bundles: []config.KeptBundle{registry.Describe(k.bundle.File, k.bundle.Manifest)}}
		list = append(list, phases.KeptSpace(k.node.Existing, kept))
	}
	images, err := k.missingImageSpace(ctx)
	return append(list, state, images), err
}

// missingImageSpace returns the space for the images that the container runtime of this node does not
// have. Without an answer of the runtime, it has none of them.
func (k *checks) missingImageSpace(ctx context.Context) (preflight.Space, error) {
	images := k.node.Plan.Images()
	containerd, err := store.Connect(ctx, strings.TrimPrefix(k.node.Config.NodeRegistration.CRISocket, "unix://"))
	if err != nil {
		return phases.LayerSpace(node.ContainerdDir, images), nil
	}
	defer containerd.Close()
	info, err := containerd.Inventory().Info(ctx)
	if err != nil {
		return preflight.Space{}, err
	}
	images, err = containerd.Inventory().Missing(ctx, images)
	return phases.LayerSpace(cmp.Or(info.ImageDir, node.ContainerdDir), images), err
}
