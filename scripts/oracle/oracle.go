// Package oracle runs real kubeadm for tests, which compare its output with the output of packages
// pki and render. Only tests use it.
package oracle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"airlift/scripts/fixtures/rig"
)

// Output is the output of one `kubeadm init --dry-run`.
type Output struct {
	// Dir has the files that init would write, all in one directory except
	// etcd/: certificates, kubeconfigs, manifests, the kubelet's files.
	Dir string
	// Objects are the API objects that init would create, as YAML, in
	// kubeadm's order.
	Objects [][]byte
	// Log is everything it printed.
	Log string
}

// Kubeadm returns the path of a real kubeadm.
func Kubeadm(t testing.TB, version string) string {
	t.Helper()
	return rig.Component(t, version, "kubeadm")
}

// Run runs `init --dry-run` of the case's kubeadm version with the case's
// configuration, in a root directory in which only the case's directories exist. It
// changes nothing outside the test's temporary directory.
func Run(t testing.TB, c Case, args ...string) Output {
	t.Helper()
	kubeadm := Kubeadm(t, c.Config.KubernetesVersion)
	root := t.TempDir()
	for _, dir := range append([]string{"/etc/ssl/certs", "/tmp"}, c.HostDirs...) {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "kubeadm.yaml"), []byte(c.Documents()))

	for name, text := range c.Patches {
		file := filepath.Join(root, "patches", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, []byte(text))
	}

	args = append([]string{"--rootfs", root, "init", "--dry-run", "--config", "/kubeadm.yaml",
		"--skip-phases", "preflight"}, append(c.Args, args...)...)
	cmd := exec.Command(kubeadm, args...)
	// A clean environment: kubeadm copies proxy variables into manifests.
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "KUBEADM_INIT_DRYRUN_DIR=/dry"}
	// Without a network its requests to the API server fail at once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 { // --rootfs is a chroot
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, log.String())
	}
	// Older versions create a subdirectory.
	dir := filepath.Join(root, "dry")
	if dirs, _ := filepath.Glob(filepath.Join(dir, "tmp", "kubeadm-init-dryrun*")); len(dirs) == 1 {
		dir = dirs[0]
	}
	return Output{Dir: dir, Objects: attached(log.String()), Log: log.String()}
}

// attached extracts the objects from the output of a dry run: each follows a
// heading. Older versions indent objects by a tab; in newer ones, the next message
// ends an object.
func attached(log string) [][]byte {
	var objects [][]byte
	var current []byte
	inside := false
	end := func() {
		if len(current) > 0 {
			objects = append(objects, current)
		}
		current, inside = nil, false
	}
	for line := range strings.Lines(log) {
		text, tab := strings.CutPrefix(line, "\t")
		switch {
		case strings.HasPrefix(line, "[dryrun] Attached object:"):
			end()
			inside = true
		case message.MatchString(line):
			end()
		case inside && tab:
			current = append(current, text...)
		case inside:
			current = append(current, line...)
		}
	}
	end()
	return objects
}

// message is the start of kubeadm's own lines: of a phase, of its log, or of the
// success message.
var message = regexp.MustCompile(`^(\[|[IWEF][0-9]{4} |Your Kubernetes )`)

// Read returns one of the files that kubeadm wrote.
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

// Migrate validates documents with kubeadm and returns them as kubeadm migrates
// them. A field that this version does not know fails the test.
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
