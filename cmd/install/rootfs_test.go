package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/rig"
)

// TestRootfs: with --rootfs, the paths of the command line are paths below that directory, as
// with kubeadm.
func TestRootfs(t *testing.T) {
	rig.Root(t)
	root := t.TempDir()
	const text = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.1\n"
	must(t, os.WriteFile(filepath.Join(root, "kubeadm.yaml"), []byte(text), 0o600))
	args := []string{"--rootfs", root, "config", "validate", "--config", "/kubeadm.yaml"}
	if out := kubeadmOutput(t, "v1.37.1", args...); out != "ok\n" {
		t.Errorf("kubeadm: %q", out)
	}
	if out, errs, code := install(t, args...); code != 0 || out != "ok\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if out, code := runBundle(t, bundleFile(t, "v1.37.1"), args...); code != 0 || out != "ok\n" {
		t.Errorf("from a bundle: %d %q", code, out)
	}
	args = []string{"config", "migrate", "--rootfs", root, "--old-config", "/kubeadm.yaml", "--new-config", "/new.yaml"}
	if _, errs, code := install(t, args...); code != 0 {
		t.Errorf("%d %q", code, errs)
	}
	if data, err := os.ReadFile(filepath.Join(root, "new.yaml")); err != nil || !strings.Contains(string(data), "kind: ClusterConfiguration") {
		t.Errorf("%v %s", err, data)
	}
	if _, errs, code := install(t, "--rootfs", "/no/such/directory", "token", "generate"); code != 2 || !strings.Contains(errs, "/no/such/directory") {
		t.Errorf("no such directory: %d %q", code, errs)
	}
	// Commands with a --rootfs of their own write below the directory without a chroot.
	cmd := exec.Command(os.Args[0], "certs", "check-expiration", "--rootfs", root, "--config", filepath.Join(root, "kubeadm.yaml"))
	cmd.Env = append(os.Environ(), asMain+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "!MISSING! apiserver") {
		t.Errorf("%v %s", err, out)
	}
}
