//go:build conformance

package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle/upstream/components"
)

// The binaries of Debian's packages start in the images: their libraries and files are there.
func TestDebianBinariesStart(t *testing.T) {
	rig.Root(t)
	release, err := components.Find("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := components.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{Cache: cache} // has busybox
	for name, c := range map[string]struct {
		image    spec
		commands [][]string
	}{
		"agnhost": {b.agnhostWithTools(release), [][]string{
			{"dig", "-v"}, {"nslookup", "-version"}, {"host", "-V"}, {"curl", "--version"}, {"bash", "-c", "ip -V && ss -V"},
			{"sh", "-c", "iperf -v 2>&1 | grep iperf"}, {"socat", "-V"}, {"ipcs", "-a"}, {"busybox", "sh", "-c", "nc -h 2>&1 | grep OpenBSD"}, {"id", "user-defined-in-image"}, {"getent", "passwd", "root"}}},
		"busybox":           {b.busybox(release), [][]string{{"sh", "-c", "seq 3 | awk '{print $1}' | sort -r | head -1 && busybox timeout 1 true"}, {"env", "data-1=x", "sh", "-c", "env | grep data-1=x"}}},
		"glibc-dns-testing": {b.dnsTools(release), [][]string{{"dig", "-v"}, {"sh", "-c", "seq 3 | awk '{print $1}' | sed p | grep -c 1"}, {"getent", "passwd", "root"}, {"hostname"}}},
		"nginx":             {b.nginx(release), [][]string{{"nginx", "-t"}}},
		"httpd":             {b.httpd(release), [][]string{{"httpd-foreground", "-t"}}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, layer := range c.image.layers {
				if strings.HasPrefix(layer.key, "programs 1") {
					continue // components, which are static
				}
				tree := newTree("amd64")
				if err := layer.fill(t.Context(), tree); err != nil {
					t.Fatal(err)
				}
				var written bytes.Buffer
				if err := tree.write(&written); err != nil {
					t.Fatal(err)
				}
				unpack := exec.Command("tar", "-x", "-C", root, "--keep-directory-symlink")
				unpack.Stdin = &written
				if out, err := unpack.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			for _, d := range []string{"dev", "proc/self/fd", "run"} {
				if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range []string{"dev/null", "dev/stdout", "dev/stderr"} {
				if err := os.WriteFile(filepath.Join(root, f), nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			for _, argv := range c.commands {
				run := exec.Command("/usr/bin/env", argv...) // of the image
				run.Dir = "/"
				run.Env = []string{searchPath}
				run.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
				if out, err := run.CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", strings.Join(argv, " "), err, out)
				}
			}
		})
	}
}
