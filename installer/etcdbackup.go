package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"sigs.k8s.io/yaml"

	"airlift/bundle/space"
	"airlift/documents"
	"airlift/fault"
	"airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/pki"
)

// A Backup saves this cluster's etcd, its shared keys and its configuration to one file.
type Backup struct {
	*machine
	Recipients []age.Recipient // who can decrypt it; none means that it is not encrypted
	Kubeconfig string          // of an administrator
	// WithoutQuorum also saves the data of a member without a leader, whose last changes may be missing.
	WithoutQuorum bool
	Summary       string // of what was saved, for people
}

// NewBackup returns a Backup of a host's cluster.
func NewBackup(h *host.Host, c *Console) *Backup {
	return &Backup{machine: newMachine(h, c), Kubeconfig: adminConf}
}

// A BackupRecord is the result of the last backup on this host.
type BackupRecord struct {
	Time     time.Time      `json:"time"`
	Path     string         `json:"path"`
	Size     int64          `json:"size,omitempty"`
	Snapshot *etcd.Snapshot `json:"snapshot,omitempty"`
	// CACertHash identifies the cluster, for --ca-cert-hash.
	CACertHash string `json:"caCertHash,omitempty"`
	Error      string `json:"error,omitempty"`
}

// backupRecordPath has the BackupRecord.
const backupRecordPath = host.StateDir + "/backup.json"

// Save writes a verified backup to a file that the user named. It replaces an existing file
// only with force.
func (b *Backup) Save(ctx context.Context, file string, force bool) error {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return fault.New(fault.Usage, "name a file in it, such as "+fault.Word(path.Join(file, "cluster.tar"))+"; or write backups to it at intervals: --every 6h", "%s is a directory", file)
	}
	if _, err := os.Lstat(file); err == nil && !force {
		return backupExists(file)
	}
	_, err := b.saveAs(ctx, file, func(backup.Manifest) string { return file }, force)
	return err
}

func backupExists(file string) error {
	return fault.New(fault.Usage, "choose another name, or replace it with --force", "%s exists", file)
}

// saveAs writes a backup to a path, or to a file in it that name chooses, and records the result.
func (b *Backup) saveAs(ctx context.Context, path string, name func(backup.Manifest) string, replace bool) (BackupRecord, error) {
	r := BackupRecord{Time: time.Now().UTC().Truncate(time.Second), Path: path}
	err := b.checkPlace(path)
	if err == nil {
		err = b.save(ctx, name, replace, &r)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r, errors.Join(err, b.record(r))
}

// checkPlace refuses a path at which reset would remove the backup.
func (b *Backup) checkPlace(path string) error {
	e, err := ownEtcd(b.host)
	if err != nil {
		return err
	}
	dir, err := b.host.RemovedByReset(path, e.dataDir, e.certificates)
	if err == nil && dir != "" {
		err = fault.New(fault.Usage, "choose another directory, such as /root/backups, or better one on another drive", "a backup at %s would be lost: reset removes what is in %s", path, dir)
	}
	return err
}

// record stores the result, except on a host that Airlift did not install.
func (b *Backup) record(r BackupRecord) error {
	if !b.host.Used() {
		return nil
	}
	return writeRecord(b.host, backupRecordPath, r)
}

// lastBackup returns the result of the last backup on this host, nil if there is none.
func lastBackup(h *host.Host) (*BackupRecord, error) {
	return readRecord[BackupRecord](h, backupRecordPath, "the next backup replaces it: ./install etcd snapshot FILE")
}

// save writes a backup, and completes its record.
func (b *Backup) save(ctx context.Context, name func(backup.Manifest) string, replace bool, r *BackupRecord) error {
	c, e, err := localEtcdClient(ctx, b.machine)
	if err != nil {
		return err
	}
	defer c.Close()
	m, current, err := b.describe(ctx, c, e)
	if err != nil {
		return err
	}
	// Not next to the backup: the snapshot is not encrypted.
	snapshot, err := b.host.CreateScratch()
	if err != nil {
		return fmt.Errorf("writing to %s: %w", host.StateDir, err)
	}
	defer snapshot.Close()
	if m.Snapshot, err = takeSnapshot(ctx, c, snapshot); err != nil {
		return space.Explain(host.StateDir, err)
	}
	var stored storedCluster
	if current {
		stored, err = b.fromCluster(ctx)
	} else {
		stored, err = b.fromSnapshot(snapshot.Name())
	}
	if err != nil {
		return err
	}
	files, err := b.collect(&m, stored)
	if err != nil {
		return err
	}
	r.Path = name(m)
	if r.Size, err = b.write(ctx, r.Path, replace, m, snapshot.Name(), files); err != nil {
		return err
	}
	r.Snapshot, r.CACertHash = &m.Snapshot, m.CACertHash
	b.Summary = fmt.Sprintf("%s: %d keys at revision %d, %d files, hash %08x, verified\nto restore only a backup of this cluster: --ca-cert-hash %s",
		r.Path, m.Snapshot.Keys, m.Snapshot.Revision, len(files), m.Snapshot.Hash, m.CACertHash)
	return nil
}

// write writes the archive, and returns its size.
func (b *Backup) write(ctx context.Context, file string, replace bool, m backup.Manifest, snapshot string, files []backup.File) (size int64, err error) {
	failed := func(err error) error {
		return fmt.Errorf("writing %s: %w", file, space.Explain(filepath.Dir(file), err))
	}
	out, err := host.CreateOutput(file)
	if err != nil {
		return 0, failed(err)
	}
	defer out.Discard()
	if exposed, err := host.Exposed(out.Name()); err != nil {
		return 0, failed(err)
	} else if exposed && len(b.Recipients) == 0 {
		b.console.Warn("other users of this host can read %s, which has all secrets of the cluster: its file system has no modes. Encrypt the backup (--recipient), or mount the file system with umask=077", file)
	}
	if err := backup.Write(cancelled{ctx, out}, m, snapshot, files, b.Recipients...); err != nil {
		return 0, failed(err)
	}
	if size, err = out.Size(); err != nil {
		return 0, failed(err)
	}
	commit := out.CommitNew
	if replace {
		commit = out.Commit
	}
	switch err := commit(); {
	case errors.Is(err, fs.ErrExist):
		return 0, backupExists(file)
	case err != nil:
		return 0, failed(err)
	}
	return size, nil
}

const etcdHint = "see the kubelet's log: journalctl -u kubelet -e; and that of etcd below /var/log/pods"

// ownEtcd is findEtcd for commands that need a control plane with its own etcd.
func ownEtcd(h *host.Host) (*localEtcd, error) {
	e, err := findEtcd(h)
	if err == nil && e == nil {
		err = fault.New(fault.Failure, "run it as root on a control plane; an external etcd has its own tools", "this host has no etcd: %s does not exist", etcdManifest)
	}
	return e, err
}

// describe returns what the manifest says about etcd. It also checks the free space, as far as it is
// known. current is false if this host's member may not have the last changes.
func (b *Backup) describe(ctx context.Context, c *etcd.Client, e *localEtcd) (m backup.Manifest, current bool, err error) {
	members, id, err := currentMembers(ctx, c, e.clientURL)
	if err != nil {
		if !b.WithoutQuorum || len(members) == 0 {
			return m, false, err
		}
		b.console.Warn("%v", err)
	}
	m = backup.Manifest{Created: time.Now(), Node: pki.NodeName(b.files()), EtcdClusterID: fmt.Sprintf("%016x", id), CNI: "none"}
	for _, s := range members {
		m.Members = append(m.Members, backup.Member{Name: s.Name, PeerURL: s.PeerURL})
		if slices.Contains(s.ClientURLs, e.clientURL) {
			m.EtcdVersion = s.Version
			if err := space.Check(b.host.Path(path.Dir(host.StateDir)), "the snapshot of etcd", s.DBSize); err != nil {
				return m, false, fault.Wrap(err, fault.Failure, "free some space in "+path.Dir(host.StateDir))
			}
		}
	}
	return m, err == nil, nil
}

// A storedCluster is what the cluster has stored about itself.
type storedCluster struct {
	*cluster.FetchedConfig
	flannel bool
}

// fromCluster asks the API server.
func (b *Backup) fromCluster(ctx context.Context) (s storedCluster, err error) {
	client, err := adminClient(ctx, b.host, b.Kubeconfig)
	if err != nil {
		return s, err
	}
	if s.FetchedConfig, err = client.FetchConfig(ctx); err != nil {
		return s, err
	}
	s.flannel, err = client.HasFlannel(ctx)
	return s, err
}

// fromSnapshot reads a snapshot, because without a quorum no API server answers.
func (b *Backup) fromSnapshot(file string) (s storedCluster, err error) {
	flags, _, err := readStaticPod(b.host, "kube-apiserver")
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
	certificates := cmp.Or(stored.Cluster.CertificatesDir, config.CertificatesDir)
	files, err := b.sharedFiles(certificates)
	if err != nil {
		return nil, err
	}
	if m.CACertHash, err = caHash(files[0].Data); err != nil {
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

// currentMembers returns the state of all members, when that of this host has a leader.
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
			return fault.New(fault.Failure, etcdHint+"; meanwhile, save backups on another control plane; if the others are lost, save what this one has: --without-quorum",
				"this host's etcd member %s may not have the last changes: %w", m.Member, m.Err)
		}
	}
	return nil
}

// sharedNames are the files that all control planes share. Those after the first may be
// missing: with an external CA, its key is elsewhere.
var sharedNames = []string{"ca.crt", "ca.key", "etcd/ca.crt", "etcd/ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"}

func (b *Backup) sharedFiles(dir string) (files []backup.File, err error) {
	for i, name := range sharedNames {
		data, err := os.ReadFile(b.host.Path(path.Join(dir, name)))
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			b.console.Warn("%s is not on this host, so it is not in the backup", path.Join(dir, name))
			continue
		}
		if err != nil {
			return nil, fault.Wrap(fmt.Errorf("reading the cluster's keys: %w", err), fault.Failure, "run it as root on a control plane")
		}
		files = append(files, backup.File{Name: backup.PKIDir + name, Data: data})
	}
	return files, nil
}

// caHash is the hash of the first CA certificate.
func caHash(caPEM []byte) (string, error) {
	hashes, err := pki.CAHashes(caPEM)
	if err != nil || len(hashes) == 0 {
		return "", fmt.Errorf("reading the cluster's CA: %w", err)
	}
	return hashes[0], nil
}

// nodeFields are the fields of a KubeletConfiguration that depend on the node's host.
var nodeFields = []string{"cgroupDriver", "resolvConf", "failCgroupV1", "containerRuntimeEndpoint", "staticPodPath"}

// configuration returns kubeadm's documents from which init would create this cluster.
func (b *Backup) configuration(fetched *cluster.FetchedConfig, node string, files []backup.File) ([]byte, error) {
	flags, _, err := readStaticPod(b.host, "kube-apiserver")
	if err != nil {
		return nil, err
	}
	if file := flags["encryption-provider-config"]; file != "" && !slices.ContainsFunc(files, func(f backup.File) bool { return path.Base(f.Name) == path.Base(file) }) {
		b.console.Warn("the API server encrypts data with the keys in %s, which are not in the backup: keep a copy of that file", file)
	}
	c := config.Config{Cluster: fetched.Cluster}
	c.NodeRegistration.Name = node
	c.LocalAPIEndpoint.AdvertiseAddress = flags["advertise-address"]
	if port, err := strconv.ParseInt(flags["secure-port"], 10, 32); err == nil {
		c.LocalAPIEndpoint.BindPort = int32(port)
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
	for _, name := range nodeFields {
		delete(kubelet, name)
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
