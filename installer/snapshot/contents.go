package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/documents"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// describe returns the part of the manifest about etcd. It also checks the free space for the snapshot.
// current is false if this host's member may not have the last changes.
func (b *Backup) describe(ctx context.Context, c *etcd.Client, e *node.LocalEtcd) (m backup.Manifest, current bool, err error) {
	members, id, err := currentMembers(ctx, c, e.ClientURL)
	if err != nil {
		if !b.WithoutQuorum || len(members) == 0 {
			return m, false, err
		}
		b.Console.Warn("%v", err)
	}
	m = backup.Manifest{Created: time.Now(), Node: pki.NodeName(b.Files()), EtcdClusterID: fmt.Sprintf("%016x", id), CNI: "none"}
	for _, s := range members {
		m.Members = append(m.Members, backup.Member{Name: s.Name, PeerURL: s.PeerURL})
		if slices.Contains(s.ClientURLs, e.ClientURL) {
			m.EtcdVersion = s.Version
			if err := space.Check(b.Host.Path(path.Dir(ledger.StateDir)), "the snapshot of etcd", s.DBSize); err != nil {
				return m, false, fault.Wrap(err, fault.Failure, "free some space in "+path.Dir(ledger.StateDir))
			}
		}
	}
	return m, err == nil, nil
}

// A storedCluster is the cluster's own stored configuration.
type storedCluster struct {
	*cluster.FetchedConfig
	flannel bool
}

// fromCluster asks the API server.
func (b *Backup) fromCluster(ctx context.Context) (s storedCluster, err error) {
	client, err := node.AdminClient(ctx, b.Host, b.Kubeconfig)
	if err != nil {
		return s, err
	}
	if s.FetchedConfig, err = client.FetchConfig(ctx); err != nil {
		return s, err
	}
	s.flannel, err = client.NodeObjects().HasFlannel(ctx)
	return s, err
}

// fromSnapshot reads a snapshot, because without a quorum no API server answers.
func (b *Backup) fromSnapshot(file string) (s storedCluster, err error) {
	flags, _, err := node.ReadStaticPod(b.Host, "kube-apiserver")
	if err != nil {
		return s, err
	}
	snapshot := cluster.Snapshot{Prefix: cmp.Or(flags["etcd-prefix"], "/registry")}
	if snapshot.Values, err = etcd.Values(file, snapshot.Keys()...); err != nil {
		return s, err
	}
	s.FetchedConfig, err = snapshot.Config()
	s.flannel = snapshot.HasFlannel()
	return s, err
}

// collect completes the manifest, and returns the small files of the archive.
func (b *Backup) collect(m *backup.Manifest, stored storedCluster) ([]backup.File, error) {
	m.KubernetesVersion, m.ClusterName, m.ControlPlaneEndpoint = stored.Cluster.KubernetesVersion, stored.Cluster.ClusterName, stored.Cluster.ControlPlaneEndpoint
	if stored.flannel {
		m.CNI = "flannel"
	}
	if e := stored.Cluster.Endpoint; e.Used() {
		m.Endpoint = &e
	}
	m.EmbeddedRegistry = stored.Cluster.Registry.Used
	certificates := cmp.Or(stored.Cluster.CertificatesDir, config.CertificatesDir)
	files, err := b.sharedFiles(certificates)
	if err != nil {
		return nil, err
	}
	if m.CACertHash, err = node.CAHash(files[0].Data); err != nil {
		return nil, err
	}
	others, err := b.componentFiles(&stored.Cluster, files)
	if err != nil {
		return nil, err
	}
	files = append(files, others...)
	document, err := b.configuration(stored.FetchedConfig, m.Node, files)
	if err != nil {
		return nil, err
	}
	return append([]backup.File{{Name: backup.ConfigName, Data: document}}, files...), nil
}

// electionTimeout is how long a backup waits until the member of this host has a leader. An election
// takes about a second, longer on a slow disk.
const electionTimeout = 30 * time.Second

// currentMembers returns the state of all members, when this host's member has a leader.
func currentMembers(ctx context.Context, c *etcd.Client, clientURL string) (members []etcd.Status, id uint64, err error) {
	for end := time.Now().Add(electionTimeout); ; {
		if members, id, err = c.Status(ctx); err == nil {
			err = checkCurrent(members, clientURL)
		}
		if err == nil || time.Now().After(end) {
			return members, id, err
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// checkCurrent refuses a snapshot of a member that may not have the last changes. A member without a
// leader sends one too, while the API server of another control plane answers.
func checkCurrent(members []etcd.Status, clientURL string) error {
	for _, m := range members {
		if slices.Contains(m.ClientURLs, clientURL) && m.Err != nil && !errors.Is(m.Err, etcd.ErrNoSpace) {
			return fault.New(fault.Failure, "this host's etcd member %s may not have the last changes: %w", m.Member, m.Err).
				Hint(node.EtcdHint + "; meanwhile, save backups on another control plane; if the others are lost, save what this one has: --without-quorum")
		}
	}
	return nil
}

// SharedNames are the files that all control planes share. Those after the first may be
// missing: with an external CA, its key is elsewhere.
var SharedNames = []string{"ca.crt", "ca.key", "etcd/ca.crt", "etcd/ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"}

func (b *Backup) sharedFiles(dir string) (files []backup.File, err error) {
	for i, name := range SharedNames {
		data, err := os.ReadFile(b.Host.Path(path.Join(dir, name)))
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			b.Console.Warn("%s is not on this host, so it is not in the backup", path.Join(dir, name))
			continue
		}
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("reading the cluster's keys: %w", err), fault.Failure, "run it as root on a control plane")
		}
		files = append(files, backup.File{Name: backup.PKIDir + name, Data: data})
	}
	return files, nil
}

// nodeFields are the fields of a KubeletConfiguration that depend on the node's host.
var nodeFields = []string{"cgroupDriver", "resolvConf", "failCgroupV1", "containerRuntimeEndpoint", "staticPodPath"}

// configuration returns kubeadm's documents from which init would create this cluster.
func (b *Backup) configuration(fetched *cluster.FetchedConfig, name string, files []backup.File) ([]byte, error) {
	flags, _, err := node.ReadStaticPod(b.Host, "kube-apiserver")
	if err != nil {
		return nil, err
	}
	if file := flags["encryption-provider-config"]; file != "" && !slices.ContainsFunc(files, func(f backup.File) bool { return path.Base(f.Name) == path.Base(file) }) {
		b.Console.Warn("the API server encrypts data with the keys in %s, which are not in the backup: keep a copy of that file", file)
	}
	c := config.Config{Cluster: fetched.Cluster}
	c.NodeRegistration.Name = name
	if c.LocalAPIEndpoint, err = node.APIEndpoint(flags); err != nil {
		return nil, err
	}
	text, err := c.WriteInit(config.APIVersion(c.KubernetesVersion))
	if err != nil {
		return nil, err
	}
	texts := []string{string(text)}
	kubelet := map[string]any{}
	if err := documents.Unmarshal(fetched.Kubelet, &kubelet); err != nil {
		return nil, fmt.Errorf("reading the cluster's KubeletConfiguration: %w", err)
	}
	for _, field := range nodeFields {
		delete(kubelet, field)
	}
	for _, one := range []any{kubelet, fetched.KubeProxy} {
		text, err := yaml.Marshal(one)
		if err != nil {
			return nil, err
		}
		if string(text) != "null\n" {
			texts = append(texts, string(text))
		}
	}
	return []byte(strings.Join(texts, "---\n")), nil
}
