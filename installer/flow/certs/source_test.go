package certs

import (
	"path/filepath"
	"testing"

	"airlift/installer/config"
)

// A relative path of a kubeconfig begins at the current directory, as in kubeadm.
func TestRelativeKubeconfig(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, c := range []struct{ rootfs, kubeconfig, want string }{
		{"/", "admin.conf", filepath.Join(dir, "admin.conf")},
		{"/", "/etc/kubernetes/admin.conf", "/etc/kubernetes/admin.conf"},
		{"/mnt/root", "/etc/kubernetes/admin.conf", "/mnt/root/etc/kubernetes/admin.conf"},
	} {
		s := &Source{Rootfs: c.rootfs, Kubeconfig: c.kubeconfig}
		if got, err := s.kubeconfigFile(); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	if got, err := config.Absolute("--kubeconfig", ""); err != nil || got != "" {
		t.Errorf("none: %q, %v", got, err)
	}
}
