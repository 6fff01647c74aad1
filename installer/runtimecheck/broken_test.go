package runtimecheck

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// TestNoFile: the configuration file of an existing containerd is gone, so that its next start has the defaults.
func TestNoFile(t *testing.T) {
	need := Need{Socket: "/run/containerd/containerd.sock", CgroupDriver: "systemd"}
	list, err := Check{Open: open(containerd(t)), Files: fstest.MapFS{}, Config: "/etc/containerd/config.toml", Need: &need}.Problems(t.Context())
	if err != nil || len(list) != 1 || list[0].Warning || list[0].File != "/etc/containerd/config.toml" || !strings.Contains(list[0].Message, "does not exist") || !strings.Contains(list[0].Message, "SystemdCgroup is false") {
		t.Errorf("%+v, %v", list, err)
	}
	need.CgroupDriver = "cgroupfs"
	if list, err := (Check{Open: open(containerd(t)), Files: fstest.MapFS{}, Config: "/etc/containerd/config.toml", Need: &need}).Problems(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestStrangeFiles: what looks like a file of the configuration and is none never blocks the check, and a hint can be typed.
func TestStrangeFiles(t *testing.T) {
	check := Check{Open: open(containerd(t)), Config: "/etc/containerd/config.toml", Written: true}
	for name, test := range map[string]struct {
		file      *fstest.MapFile
		want, fix string
	}{
		"a.toml":           {&fstest.MapFile{Mode: fs.ModeNamedPipe}, "does not start", "mv /etc/containerd/conf.d/a.toml /etc/containerd/conf.d/a.toml.before;"},
		"b.toml":           {&fstest.MapFile{Mode: fs.ModeDevice | fs.ModeCharDevice}, "does not start", ""},
		"c.toml/x":         {&fstest.MapFile{}, "does not start", ""},
		"$(id) a;b'c.toml": {&fstest.MapFile{Data: []byte("version = 9\n")}, "does not start", `mv '/etc/containerd/conf.d/$(id) a;b'\''c.toml' '/etc/containerd/conf.d/$(id) a;b'\''c.toml'.before;`},
	} {
		files := host(nil)
		files["etc/containerd/conf.d/"+name] = test.file
		check.Files = files
		list, err := check.Problems(t.Context())
		if err != nil || len(list) != 1 || list[0].Warning || !strings.Contains(list[0].Message, test.want) || !strings.HasPrefix(list[0].Fix, test.fix) {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	files := host(nil)
	files["etc/containerd/conf.d/huge.toml"] = &fstest.MapFile{Data: make([]byte, 5<<20)}
	check.Files = files
	if list, err := check.Problems(t.Context()); err == nil || !strings.Contains(err.Error(), "huge.toml") {
		t.Errorf("%+v, %v", list, err)
	}
	// As on a host: a link that leads nowhere.
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "etc/containerd/conf.d"), 0o755), os.WriteFile(filepath.Join(dir, "etc/containerd/config.toml"), []byte(root), 0o600),
		os.Symlink("/nowhere", filepath.Join(dir, "etc/containerd/conf.d/a.toml")), os.Symlink("/dev/zero", filepath.Join(dir, "etc/containerd/conf.d/b.toml")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	check.Files = os.DirFS(dir)
	if list, err := check.Problems(t.Context()); err != nil || len(list) != 2 || !list[0].Warning || !list[1].Warning || !strings.Contains(list[0].Fix+list[1].Fix, "rm -i /etc/containerd/conf.d/a.toml") {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestBadBinary: a containerd that hangs, prints without end or prints nonsense ends the check with an error, and prints no file.
func TestBadBinary(t *testing.T) {
	defer func(was time.Duration) { dumpTime = was }(dumpTime)
	dumpTime = time.Second
	for script, want := range map[string]string{
		"sleep 60 & sleep 60":              "it has not ended after 1s",
		"yes":                              "bytes",
		"echo nonsense":                    "reading what containerd prints",
		"yes | head -c 100000 >&2; exit 1": "",
	} {
		binary := filepath.Join(t.TempDir(), "containerd")
		if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := Binary{Path: binary}.Effective(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > maxMessage+100 || time.Since(began) > 20*time.Second {
			t.Errorf("%s: %.200v after %s", script, err, time.Since(began))
		}
		if refused := (*RefusedError)(nil); errors.As(err, &refused) != (want == "") {
			t.Errorf("%s: %.200v", script, err)
		}
	}
}
