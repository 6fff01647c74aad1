package installer

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	kubeletrules "airlift/installer/kubelet"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/upgradecheck"
)

// runChecks runs the checks that precede an upgrade. learn must have succeeded. It changes
// nothing.
func (u *Upgrade) runChecks(ctx context.Context, t *upgradecheck.Target) (preflight.Report, error) {
	return upgradecheck.Run(ctx, t, u.options.IgnorePreflightErrors)
}

// versionTarget reads what is known without this node's new configuration: the versions, and the
// state of the cluster. u.client must be connected.
func (u *Upgrade) versionTarget(ctx context.Context, command upgradecheck.Command, c *config.Config, from config.Cluster) (*upgradecheck.Target, error) {
	facts, err := u.client.UpgradeFacts(ctx)
	if err != nil {
		return nil, err
	}
	old := *c
	old.Cluster = from
	old.KubernetesVersion = u.bundle.KubernetesVersion()
	return &upgradecheck.Target{
		Command: command, From: from.KubernetesVersion, To: u.bundle.KubernetesVersion(), Drain: u.options.Drain,
		Platform: u.bundle.manifest.Platform, HostPlatform: "linux/" + runtime.GOARCH,
		Root: u.existing.Path("/"), Files: u.files(), NodeName: c.NodeRegistration.Name, ControlPlane: u.isControlPlane(),
		Config: &old, Cluster: facts, Now: time.Now(),
	}, nil
}

// checkTarget reads all that the checks of an upgrade look at. It changes nothing.
func (u *Upgrade) checkTarget(ctx context.Context, command upgradecheck.Command) (*upgradecheck.Target, error) {
	if err := u.learn(ctx); err != nil {
		return nil, err
	}
	t, err := u.versionTarget(ctx, command, u.config, u.stored.Cluster)
	if err != nil {
		return nil, err
	}
	t.Kubelet = u.self.KubeletVersion
	t.Config, t.Continues = u.config, u.state != nil && !u.state.Finished
	if u.state != nil {
		if t.Kept, err = u.existing.Kept(u.state.formerName()).Paths(); err != nil {
			return nil, err
		}
	}
	t.MissingImages = u.plan.missingImages(u.config)
	if a, b, ok := minorsOf(t.From, t.To); ok && b > a && command != upgradecheck.Node {
		if t.Uses, err = u.client.APIUses(ctx, a, b); err != nil {
			return nil, err
		}
	}
	if t.ControlPlane && u.config.Etcd.External == nil {
		t.Etcd = u.etcdState(ctx)
	}
	if t.Certificates, err = u.certificates(); err != nil {
		return nil, err
	}
	if t.KubeletProblems, err = u.kubeletProblems(); err != nil {
		return nil, err
	}
	t.Disk, err = u.upgradeSpace(ctx, t.Etcd)
	return t, err
}

// minorsOf returns the minor versions of two versions.
func minorsOf(from, to string) (a, b int, ok bool) {
	one, other := config.Cluster{KubernetesVersion: from}, config.Cluster{KubernetesVersion: to}
	a, b = one.Minor(), other.Minor()
	return a, b, a > 0 && b > 0
}

// etcdState reads the state of all members of the stacked etcd.
func (u *Upgrade) etcdState(ctx context.Context) *upgradecheck.Etcd {
	state := &upgradecheck.Etcd{}
	e, err := findEtcd(u.existing)
	if err == nil && e == nil {
		err = errors.New("this host has no etcd")
	}
	if err != nil {
		state.Err = err
		return state
	}
	reader := *u.machine
	reader.host = u.existing // a dry run has no certificates
	c, err := connectEtcd(ctx, &reader, []string{e.clientURL}, e.certificates, probeTimeout)
	if err != nil {
		state.Err = err
		return state
	}
	defer c.Close()
	state.Members, _, state.Err = c.Status(ctx)
	for _, m := range state.Members {
		if m.HasPeer(e.peerURL) {
			state.Own = m.ID
		}
	}
	return state
}

// certificates lists the certificates of this host with their CAs, the kubelet's included.
func (u *Upgrade) certificates() (list []pki.Expiration, err error) {
	certs, authorities, err := pki.Expirations(u.config, u.files())
	if err != nil {
		return nil, fault.Wrap(err, fault.Preflight, "./install certs check-expiration")
	}
	if u.isControlPlane() {
		list = certs
	}
	list = append(list, authorities...)
	file := pki.KubeletCertFile(u.config)
	client := pki.Expiration{Name: path.Base(kubeletConf), File: file, CA: "ca", External: true}
	data, err := fs.ReadFile(u.files(), strings.TrimPrefix(file, "/"))
	if err != nil {
		return list, nil // as with a client certificate in kubelet.conf itself
	}
	if block, _ := pem.Decode(data); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			client.NotAfter = cert.NotAfter.UTC()
			list = append(list, client)
		}
	}
	return list, nil
}

// kubeletProblems applies the new kubelet's rules to its configuration and flags.
func (u *Upgrade) kubeletProblems() ([]kubeletrules.Problem, error) {
	files, err := u.kubeletFiles()
	if err != nil {
		return nil, err
	}
	env, err := u.optional(config.KubeletFlagsFile)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Path == config.KubeletFlagsFile {
			env = f.Data
		}
	}
	own, err := u.optional(preflight.DefaultKubelet)
	if err != nil {
		return nil, err
	}
	flags := slices.DeleteFunc(preflight.KubeletFlags("KUBELET_KUBEADM_ARGS", env), func(a config.Arg) bool {
		return a.Name == "pod-infra-container-image" // set by kubeadm
	})
	flags = append(flags, preflight.KubeletFlags("KUBELET_EXTRA_ARGS", own)...)
	return kubeletrules.Check(kubeletrules.Input{
		Kubernetes: u.bundle.KubernetesVersion(), From: u.self.KubeletVersion, Config: files[0].Data, Flags: flags,
		Root: os.DirFS(u.existing.Path("/")), CPUs: u.config.Facts.NumCPU, MemoryBytes: u.config.Facts.MemoryBytes,
	}), nil
}

// upgradeSpace returns how much the upgrade of this node writes: the missing images, the new
// binaries and copies of the previous ones, and a backup with a snapshot of etcd.
func (u *Upgrade) upgradeSpace(ctx context.Context, e *upgradecheck.Etcd) ([]preflight.Space, error) {
	state := preflight.Space{Path: host.UpgradeDir, Bytes: smallBytes, Files: 50}
	pending, err := u.pending()
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, entry := range u.bundle.manifest.Entries {
		sizes[binaryPath(entry.Name)] = entry.Size
	}
	list := []preflight.Space{}
	for _, b := range pending {
		state.Bytes += 2 * uint64(sizes[b.Path]) // staged, and the previous one
		state.Files += 2
		list = append(list, preflight.Space{Path: path.Dir(b.Path), Bytes: uint64(sizes[b.Path]), Files: 1})
	}
	if stale, err := u.staleStub(); err != nil {
		return nil, err
	} else if stale {
		size := uint64(u.bundle.file.Installer().Size)
		state.Bytes += size // the previous one
		list = append(list, preflight.Space{Path: path.Dir(host.StubPath), Bytes: size, Files: 1})
	}
	saves, err := u.needsBackup()
	if err != nil {
		return nil, err
	}
	if e != nil && saves {
		for _, m := range e.Members {
			if m.Name == u.config.NodeRegistration.Name {
				state.Bytes += uint64(m.DBSize) // the snapshot, until it is in the backup
				list = append(list, preflight.Space{Path: host.UpgradeBackups, Bytes: uint64(m.DBSize) + smallBytes, Files: 1})
			}
		}
	}
	images, err := u.missingImageSpace(ctx)
	return append(list, state, images), err
}

// missingImageSpace returns the space for the images that the container runtime of this node does not
// have. Without an answer of the runtime, it has none of them.
func (u *Upgrade) missingImageSpace(ctx context.Context) (preflight.Space, error) {
	images := u.plan.images()
	containerd, err := store.Connect(ctx, strings.TrimPrefix(u.config.NodeRegistration.CRISocket, "unix://"))
	if err != nil {
		return layerSpace(containerdDir, images), nil
	}
	defer containerd.Close()
	info, err := containerd.Info(ctx)
	if err != nil {
		return preflight.Space{}, err
	}
	images, err = containerd.Missing(ctx, images)
	return layerSpace(cmp.Or(info.ImageDir, containerdDir), images), err
}
