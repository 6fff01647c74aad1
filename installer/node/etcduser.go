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
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return fmt.Errorf("reading the new %s: %w", EtcdManifest, err)
	}
	hostPaths := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			hostPaths[v.Name] = v.HostPath.Path
		}
	}
	if hostPaths[etcdCerts] != EtcdFiles || len(pod.Spec.Containers) == 0 {
		return nil
	}
	c := pod.Spec.Containers[0]
	if c.SecurityContext == nil || c.SecurityContext.RunAsUser == nil || c.SecurityContext.RunAsGroup == nil {
		return nil // a patch lets it run as root, which can read the copies
	}
	if err := m.Host.CreateAccount(ctx, host.EtcdAccount, "etcd of Kubernetes"); err != nil {
		return err
	}
	// The numbers may be those of a patch.
	account := host.Account{UID: int(*c.SecurityContext.RunAsUser), GID: int(*c.SecurityContext.RunAsGroup)}
	if err := m.Host.MkdirAll(EtcdFiles, 0o755); err != nil { // of root: its files are read, and no other user changes them
		return err
	}
	inside := ""
	for _, mount := range c.VolumeMounts {
		if mount.Name == etcdCerts {
			inside = mount.MountPath
		}
	}
	for _, arg := range c.Command {
		_, file, _ := strings.Cut(arg, "=")
		if path.Dir(file) != inside {
			continue
		}
		if err := m.Host.WriteCopy(path.Join(EtcdFiles, path.Base(file)), file, account); err != nil {
			return err
		}
	}
	if hostPaths[etcdData] == "" {
		return nil
	}
	return m.Host.GiveData(hostPaths[etcdData], "member", account)
}
