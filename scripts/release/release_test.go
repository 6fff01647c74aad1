package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	at     = time.Unix(1700000000, 0)
	sample = []file{
		{"LICENSE", []byte("licence\n"), 0o644},
		{"README.md", []byte("readme\n"), 0o644},
		{"bundle", []byte("#!/bin/sh\necho it runs\n"), 0o755},
		{"completion/_bundle", []byte("zsh\n"), 0o644},
		{"completion/bundle.bash", []byte("bash\n"), 0o644},
		{"completion/bundle.ps1", []byte("powershell\n"), 0o644},
		{"man/bundle.1", []byte(".TH BUNDLE 1\n"), 0o644},
	}
)

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
	return string(out)
}

func saved(t *testing.T, name string, content []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// tar reads the archive: owner root, one time, the modes, and nothing else.
func TestTarGz(t *testing.T) {
	b, err := tarGz(sample, at)
	list := run(t, "tar", "-tvzf", saved(t, "a.tar.gz", b, err))
	lines := strings.Split(strings.TrimSpace(list), "\n")
	if len(lines) != len(sample) {
		t.Errorf("%d entries:\n%s", len(lines), list)
	}
	for _, line := range lines {
		if !strings.Contains(line, " root/root ") || !strings.Contains(line, " 2023-11-14 22:13 ") {
			t.Errorf("%s", line)
		}
	}
	if !strings.Contains(list, "-rwxr-xr-x root/root") {
		t.Errorf("the command is not executable:\n%s", list)
	}
	// The header has no name and no time: RFC 1952.
	if !bytes.Equal(b[3:8], make([]byte, 5)) {
		t.Errorf("gzip header % x", b[:10])
	}
}

// dpkg-deb reads the package, and dpkg installs and removes it in a root of its own.
func TestDebianPackage(t *testing.T) {
	b, err := debianPackage("v0.1.0-rc.1", "amd64", sample, at)
	deb := saved(t, "a.deb", b, err)
	if again, _ := debianPackage("v0.1.0-rc.1", "amd64", sample, at); !bytes.Equal(b, again) {
		t.Error("two packages differ")
	}
	if v := run(t, "dpkg-deb", "--field", deb, "Version"); v != "0.1.0~rc.1\n" {
		t.Errorf("version %q", v)
	}
	list := run(t, "dpkg-deb", "--contents", deb)
	for _, want := range []string{"./usr/bin/bundle", "./usr/share/man/man1/bundle.1.gz", "./usr/share/bash-completion/completions/bundle", "./usr/share/zsh/vendor-completions/_bundle", "./usr/share/doc/airlift-bundle/copyright"} {
		if !strings.Contains(list, want+"\n") {
			t.Errorf("no %s in\n%s", want, list)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(list), "\n") {
		if !strings.Contains(line, " root/root ") || !strings.Contains(line, " 2023-11-14 22:13 ") {
			t.Errorf("%s", line)
		}
	}
	if strings.Contains(list, "ps1") {
		t.Errorf("PowerShell's completion is in\n%s", list)
	}
	root := t.TempDir()
	run(t, "dpkg-deb", "--extract", deb, root)
	if out := run(t, filepath.Join(root, "usr/bin/bundle")); out != "it runs\n" {
		t.Errorf("the command prints %q", out)
	}
	run(t, "dpkg-deb", "--control", deb, filepath.Join(root, "DEBIAN"))
	sums := exec.Command("md5sum", "--check", "--strict", "--quiet", "DEBIAN/md5sums")
	sums.Dir = root
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if v := debianVersion("v0.1.0"); exec.Command("dpkg", "--compare-versions", "0.1.0~rc.1", "lt", v).Run() != nil {
		t.Errorf("0.1.0~rc.1 does not precede %s", v)
	}
}

func TestZip(t *testing.T) {
	a, err := zipArchive(sample, at)
	if err != nil {
		t.Fatal(err)
	}
	b, err := zipArchive(sample, at.In(time.FixedZone("east", 3*3600)))
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("the archive depends on the time zone, or %v", err)
	}
}

// sha256sum reads the list.
func TestChecksums(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := checksums(dir); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil || string(out) != "a: OK\nb: OK\n" {
		t.Errorf("%v: %s", err, out)
	}
}
