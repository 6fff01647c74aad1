// Package oracle runs real kubeadm for tests: what it makes of a config is what
// packages pki and render are compared with. Nothing outside of tests uses it.
package oracle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"airlift/scripts/upstream/components"
)

// Output is what one `kubeadm init --dry-run` made.
type Output struct {
	// Dir holds the files that init would write, all in one folder but for
	// etcd/: certificates, kubeconfigs, manifests, the kubelet's files.
	Dir string
	// Objects are the API objects that init would create, as YAML, in
	// kubeadm's order.
	Objects [][]byte
	// Log is everything it said.
	Log string
}

// Kubeadm returns the path of a real kubeadm, and fails the test loudly when
// it has not been built.
func Kubeadm(t testing.TB, version string) string {
	t.Helper()
	path, err := components.Path(version, "kubeadm")
	if err != nil {
		t.Fatalf("this test compares with real kubeadm: %v", err)
	}
	return path
}

// Run has the real kubeadm of a version play through init with the case's
// config, in a root folder of its own in which only the case's folders exist.
// Nothing outside of the test's temporary folder is touched.
func Run(t testing.TB, c Case, args ...string) Output {
	t.Helper()
	root := t.TempDir()
	for _, dir := range append([]string{"/etc/ssl/certs", "/tmp"}, c.HostDirs...) {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "kubeadm.yaml"), []byte(c.Documents()))

	args = append([]string{"--rootfs", root, "init", "--dry-run", "--config", "/kubeadm.yaml",
		"--skip-phases", "preflight"}, args...)
	cmd := exec.Command(Kubeadm(t, c.Config.KubernetesVersion), args...)
	// A clean environment: kubeadm copies proxy variables into manifests.
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "KUBEADM_INIT_DRYRUN_DIR=/dry"}
	if os.Getuid() != 0 { // --rootfs is a chroot
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, log.String())
	}
	dirs, err := filepath.Glob(filepath.Join(root, "dry", "tmp", "kubeadm-init-dryrun*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("kubeadm's dry-run folders: %v (%v)\n%s", dirs, err, log.String())
	}
	return Output{Dir: dirs[0], Objects: attached(log.String()), Log: log.String()}
}

// attached cuts the objects out of what a dry run prints: each follows a
// heading, indented by a tab.
func attached(log string) [][]byte {
	var objects [][]byte
	var current []byte
	inside := false
	for line := range strings.Lines(log) {
		if text, ok := strings.CutPrefix(line, "\t"); ok && inside {
			current = append(current, text...)
			continue
		}
		if inside && len(bytes.TrimSpace([]byte(line))) == 0 {
			current = append(current, line...)
			continue
		}
		if len(current) > 0 {
			objects = append(objects, current)
			current = nil
		}
		inside = strings.HasPrefix(line, "[dryrun] Attached object:")
	}
	if len(current) > 0 {
		objects = append(objects, current)
	}
	return objects
}

// Read returns one of the files that kubeadm made.
func (o Output) Read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(o.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Migrate has kubeadm read documents, strictly, and write them again as it
// would by itself. A field that this version does not know fails the test.
func Migrate(t testing.TB, version string, documents []byte) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	write(t, file, documents)
	config := func(verb, flag string) []byte {
		cmd := exec.Command(Kubeadm(t, version), "config", verb, flag, file)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/"}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kubeadm config %s: %v\n%s\n%s", verb, err, stderr.String(), documents)
		}
		return out
	}
	config("validate", "--config")
	return config("migrate", "--old-config")
}
