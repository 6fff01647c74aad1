//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/lab"
)

// otherBundle is the path of a bundle with another build of a binary on a host.
const otherBundle = "/root/other"

// carryOther writes a bundle of the same Kubernetes version in which only runc is another
// build, and copies it to the hosts.
func carryOther(t *testing.T, hosts ...*lab.Host) {
	t.Helper()
	f, err := bundle.Open(*bundlePath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	manifest, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	launcher, err := io.ReadAll(f.Launcher())
	if err != nil {
		t.Fatal(err)
	}
	const runc = "#!/bin/sh\necho runc version 9.9.9\n"
	m := *manifest
	m.Images, m.SBOMs = nil, nil
	m.Entries = []bundle.Entry{{Name: "bin/runc", Size: int64(len(runc)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(runc)))}}
	m.Components = nil
	for _, c := range manifest.Components {
		if c.Name == "runc" {
			c.Version, c.Entries = "v9.9.9", []string{"bin/runc"}
			m.Components = append(m.Components, c)
		}
	}
	path := filepath.Join(t.TempDir(), "other")
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: launcher, Installer: installerOf(t, f)}, &m, bundle.Fastest, map[string][]byte{"bin/runc": []byte(runc)})
	for _, h := range hosts {
		if _, err := h.CopyIn(t.Context(), path, otherBundle, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// installerOf reads the installer without package bundle.
func installerOf(t *testing.T, f *bundle.File) []byte {
	t.Helper()
	file, err := os.Open(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := zstd.NewReader(io.NewSectionReader(file, f.PayloadOffset(), f.PayloadSize()))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for entries := tar.NewReader(z); ; {
		e, err := entries.Next()
		if err != nil {
			t.Fatalf("looking for the installer: %v", err)
		}
		if e.Name == bundle.InstallerName {
			data, err := io.ReadAll(entries)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
}

// refusesOther runs a command of the other bundle, which must change nothing.
func refusesOther(t *testing.T, h *lab.Host, args ...string) {
	t.Helper()
	before := hostState(t, h)
	var out bytes.Buffer
	err := h.Exec(t.Context(), nil, &out, &out, append([]string{otherBundle}, args...)...)
	if code := exitCode(err); code != 3 {
		t.Errorf("%s: exit code %d, want 3\n%s", args, code, out.String())
	}
	contains(t, out.String(), "another bundle", "/usr/local/sbin/runc", "this bundle has v9.9.9", "hint: ", " reset")
	same(t, before, hostState(t, h))
}
