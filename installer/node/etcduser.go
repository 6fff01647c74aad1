package node

import (
	"context"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/profile"
	"airlift/installer/render"
)

// EtcdFiles is the directory of the certificates and keys that etcd reads in a hardened cluster: copies, because all files of the
// certificates' directory belong to root. Its container has it at the path of the originals, so no flag of etcd is different.
const EtcdFiles = config.KubernetesDir + "/etcd"

// Volumes of etcd's static pod.
const etcdCerts, etcdData = "etcd-certs", "etcd-data"

// EtcdPod returns the static pod of etcd on this host. In a hardened cluster, etcd runs as the user etcd.
func (m *Machine) EtcdPod(c *config.Config, members ...render.EtcdMember) (*corev1.Pod, error) {
	pod, err := render.Etcd(c, members...)
	if err != nil || !profile.Used(&c.Cluster) {
		return pod, err
	}
	account, _, _, err := m.Existing.FindAccount(host.EtcdAccount)
	if err != nil {
		return nil, err
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{
			RunAsUser: new(int64(account.UID)), RunAsGroup: new(int64(account.GID)), RunAsNonRoot: new(true),
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.Name == etcdCerts {
			v.HostPath.Path, v.HostPath.Type = EtcdFiles, new(corev1.HostPathDirectory)
		}
	}
	return pod, nil
}

// PrepareEtcd gives the user of etcd's static pod what etcd needs, before its manifest is written: the account, a copy of each
// certificate and key that its flags name, and its data. It does nothing for an etcd that runs as root.
func (m *Machine) PrepareEtcd(ctx context.Context, manifest []byte) error {
	if m.Existing != m.Host {
		return nil // a dry run
	}
	pod, hostPaths, err := readEtcd(manifest)
	if err != nil || !readsCopies(pod, hostPaths) {
		return err
	}
	if err := m.Host.CreateAccount(ctx, host.EtcdAccount, "etcd of Kubernetes"); err != nil {
		return err
	}
	// The numbers may be from a patch.
	is := pod.Spec.Containers[0].SecurityContext
	account := host.Account{UID: int(*is.RunAsUser), GID: int(*is.RunAsGroup)}
	if err := m.Host.MkdirAll(EtcdFiles, 0o755); err != nil { // of root: its files are read, and no other user changes them
		return err
	}
	for _, c := range copiesOf(pod) {
		if err := m.Host.WriteCopy(c.Path, c.Of, account); err != nil {
			return err
		}
	}
	if hostPaths[etcdData] == "" {
		return nil
	}
	return m.Host.GiveData(hostPaths[etcdData], "member", account)
}

// An EtcdCopy is a file that etcd reads instead of the original, which belongs to root.
type EtcdCopy struct{ Path, Of string }

// EtcdCopies returns the copies that the etcd of a manifest reads, and that PrepareEtcd writes; none for an etcd that runs as root.
func EtcdCopies(manifest []byte) ([]EtcdCopy, error) {
	pod, hostPaths, err := readEtcd(manifest)
	if err != nil || !readsCopies(pod, hostPaths) {
		return nil, err
	}
	return copiesOf(pod), nil
}

// readsCopies reports whether etcd runs as another user than root. A patch may let it run as root, which can read the copies.
func readsCopies(pod corev1.Pod, hostPaths map[string]string) bool {
	if hostPaths[etcdCerts] != EtcdFiles || len(pod.Spec.Containers) == 0 {
		return false
	}
	is := pod.Spec.Containers[0].SecurityContext
	return is != nil && is.RunAsUser != nil && is.RunAsGroup != nil
}

func copiesOf(pod corev1.Pod) (list []EtcdCopy) {
	c, inside := pod.Spec.Containers[0], ""
	for _, mount := range c.VolumeMounts {
		if mount.Name == etcdCerts {
			inside = mount.MountPath
		}
	}
	for _, arg := range c.Command {
		if _, file, _ := strings.Cut(arg, "="); path.Dir(file) == inside {
			list = append(list, EtcdCopy{Path: path.Join(EtcdFiles, path.Base(file)), Of: file})
		}
	}
	return list
}

// ReleaseEtcd takes back what PrepareEtcd gave, when an etcd runs that does not use it: the data belongs to root again, and the copies
// and an account that Airlift created are removed.
func (m *Machine) ReleaseEtcd(ctx context.Context, manifest []byte) error {
	copies := m.writtenCopies()
	_, created := m.Existing.Records().Find(ledger.Dir, EtcdFiles)
	if m.Existing != m.Host || len(copies) == 0 && !created {
		return nil
	}
	_, hostPaths, err := readEtcd(manifest)
	if err != nil || hostPaths[etcdCerts] == EtcdFiles {
		return err
	}
	if dir := hostPaths[etcdData]; dir != "" {
		if err := m.Host.GiveData(dir, "member", host.Account{}); err != nil {
			return err
		}
	}
	if err := m.removeEtcdAccount(ctx); err != nil {
		return err
	}
	for _, file := range copies { // they and their directory go last: a repeated run looks for them
		if err := m.Host.Remove(file); err != nil {
			return err
		}
	}
	return m.Host.RemoveEmpty(EtcdFiles)
}

// writtenCopies are the copies that PrepareEtcd has written on this host.
func (m *Machine) writtenCopies() (copies []string) {
	for _, e := range m.Existing.Records().Entries(ledger.File) {
		if e.CopyOf != "" && path.Dir(e.Name) == EtcdFiles {
			copies = append(copies, e.Name)
		}
	}
	return copies
}

// ReleasedByEtcd returns the files that ReleaseEtcd removes after etcd has this manifest.
func (m *Machine) ReleasedByEtcd(manifest []byte) ([]string, error) {
	copies := m.writtenCopies()
	_, hostPaths, err := readEtcd(manifest)
	if err != nil || len(copies) == 0 || hostPaths[etcdCerts] == EtcdFiles {
		return nil, err
	}
	if m.Existing.Records().Wrote(host.AccountFile) {
		copies = append(copies, host.AccountFile)
	}
	return copies, nil
}

// removeEtcdAccount removes the user and the group if Airlift created them. If that fails, reset tries again.
func (m *Machine) removeEtcdAccount(ctx context.Context) error {
	if !m.Host.Records().Wrote(host.AccountFile) {
		return nil
	}
	note, err := m.Host.RemoveAccount(ctx, host.EtcdAccount)
	if note != "" {
		m.Console.Note("left in place: %s", note)
	}
	if err != nil && ctx.Err() == nil {
		m.Console.Warn("%v; 'reset' removes it", err)
		return nil
	}
	if err != nil {
		return err
	}
	return m.Host.Remove(host.AccountFile)
}

// readEtcd reads etcd's manifest: the pod, and the directories of the host in it by the names of their volumes.
func readEtcd(manifest []byte) (pod corev1.Pod, hostPaths map[string]string, err error) {
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return pod, nil, fmt.Errorf("reading the new %s: %w", EtcdManifest, err)
	}
	hostPaths = map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			hostPaths[v.Name] = v.HostPath.Path
		}
	}
	return pod, hostPaths, nil
}
