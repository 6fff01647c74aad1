package delta_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/bundle/delta"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
)

// write writes a bundle with two binaries and one file of the site.
func write(t *testing.T, path, platform string, level bundle.Level, kubelet, runc, data []byte) *bundle.File {
	t.Helper()
	contents := map[string][]byte{"bin/kubelet": kubelet, "bin/runc": runc}
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: platform, KubernetesVersion: "v1.29.15", CNI: "none"}
	m.Components = []bundle.Component{{Name: "all", Version: "v1", URL: "https://example.com/all", Checksum: "sha256:" + strings.Repeat("0", 64),
		Entries: []string{"bin/kubelet", "bin/runc"}}}
	name := fmt.Sprintf("%s%x", bundle.FileDir, sha256.Sum256(data))
	contents[name] = data
	m.Files = []bundle.SiteFile{{Path: "/srv/data", Mode: "0644", Entry: name}}
	for _, name := range []string{"bin/kubelet", "bin/runc", name} {
		m.Entries = append(m.Entries, bundle.Entry{Name: name, Size: int64(len(contents[name])), SHA256: fmt.Sprintf("%x", sha256.Sum256(contents[name]))})
	}
	e := bundle.Executables{Launcher: bytes.Repeat([]byte("launcher"), 500), Installer: append([]byte("the installer"), kubelet[:500]...)}
	testbundle.WriteFile(t, path, e, m, level, contents)
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// machineCode is like a binary: words that do not compress, with an address every 12 bytes that
// depends on where the code is.
func machineCode(n int, inserted []byte, at int) []byte {
	code := noise(3, n)
	for i := 0; i+12 <= n; i += 12 {
		address := uint32(0x400000 + i*3)
		if i >= at {
			address += uint32(len(inserted))
		}
		binary.LittleEndian.PutUint32(code[i:], address)
	}
	return append(append(append([]byte{}, code[:at]...), inserted...), code[at:]...)
}

func stage(string, int64) func(int64) { return func(int64) {} }

func TestDelta(t *testing.T) {
	for _, level := range []bundle.Level{bundle.Fastest, bundle.Default} {
		t.Run(level.Name(), func(t *testing.T) {
			dir := t.TempDir()
			runc, data := noise(1, 300_000), noise(2, 500_000)
			old := write(t, filepath.Join(dir, "old"), "linux/amd64", bundle.Fastest, machineCode(2_000_000, nil, 0), runc, data)
			now := write(t, filepath.Join(dir, "new"), "linux/amd64", level, machineCode(2_000_000, []byte("a few more instructions, in the middle"), 800_004), runc, append(data, "more"...))
			path := filepath.Join(dir, "delta")
			h, err := delta.Create(t.Context(), old, now, path, delta.Options{Bundle: "test", Stage: stage})
			if err != nil {
				t.Fatal(err)
			}
			if h.Compression != level.Name() {
				t.Errorf("compression %s", h.Compression)
			}
			i, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			// The addresses are a sixth of 2 MB, and all after the insertion have the same difference.
			if i.Size() > 60_000 {
				t.Errorf("the delta has %d bytes", i.Size())
			}
			d, err := delta.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			result := filepath.Join(dir, "result")
			if _, err := d.Apply(t.Context(), old, result, stage); err != nil {
				t.Fatal(err)
			}
			same(t, filepath.Join(dir, "new"), result)
			files, err := os.ReadDir(dir)
			if err != nil || len(files) != 4 {
				t.Errorf("%v, %v: a temporary file is left", files, err)
			}
		})
	}
}

func same(t *testing.T, want, got string) {
	t.Helper()
	a, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s and %s differ", want, got)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	runc, data := noise(1, 3000), noise(2, 5000)
	old := write(t, file("old"), "linux/amd64", bundle.Fastest, noise(4, 9000), runc, data)
	other := write(t, file("other"), "linux/amd64", bundle.Fastest, noise(5, 9000), runc, data)
	arm := write(t, file("arm"), "linux/arm64", bundle.Fastest, noise(6, 9000), runc, data)
	now := write(t, file("new"), "linux/amd64", bundle.Fastest, noise(7, 9000), runc, data)
	refused := func(what string, err error, code fault.Code, text string) {
		t.Helper()
		if err == nil || fault.ExitCode(err) != code || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v with exit code %d, want %d and %q", what, err, fault.ExitCode(err), code, text)
		}
	}
	_, err := delta.Create(t.Context(), old, arm, file("none"), delta.Options{Stage: stage})
	refused("another platform", err, fault.Usage, "linux/arm64")
	_, err = delta.Create(t.Context(), old, old, file("none"), delta.Options{Stage: stage})
	refused("the same bundle", err, fault.Usage, "same contents")
	_, err = delta.Open(t.Context(), file("old"))
	refused("a bundle instead of a delta", err, fault.Usage, "is not a delta")

	if _, err := delta.Create(t.Context(), old, now, file("delta"), delta.Options{Stage: stage}); err != nil {
		t.Fatal(err)
	}
	d, err := delta.Open(t.Context(), file("delta"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_, err = d.Apply(t.Context(), other, file("none"), stage)
	refused("another older bundle", err, fault.Usage, "needs another older bundle")
	wrong := *d
	wrong.New.SHA256 = strings.Repeat("0", 64)
	_, err = wrong.Apply(t.Context(), old, file("none"), stage)
	refused("a result with other bytes", err, fault.Bundle, "writing "+file("none")+": the result has the sha256 "+d.New.SHA256+" and not 000")
	if left, _ := filepath.Glob(filepath.Join(dir, "*none*")); len(left) > 0 {
		t.Errorf("after a result with other bytes: %q", left)
	}

	whole, err := os.ReadFile(file("delta"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 5, 16, 40, len(whole) / 2, len(whole) - 1} {
		if err := os.WriteFile(file("damaged"), whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := delta.Open(t.Context(), file("damaged"))
		code := fault.Bundle
		if n < 8 {
			code = fault.Usage
		}
		refused(fmt.Sprintf("the first %d bytes", n), err, code, file("damaged"))
	}
	if err := resealed(file("damaged"), bytes.Replace(whole, []byte(`"steps":`), []byte(`"added":`), 1)); err != nil {
		t.Fatal(err)
	}
	_, err = delta.Open(t.Context(), file("damaged"))
	refused("a repeated field", err, fault.Bundle, `duplicate field "contents[0].added"`)
	for at := 0; at < len(whole); at += 1 + len(whole)/400 {
		b := bytes.Clone(whole)
		b[at] ^= 0x40
		if err := os.WriteFile(file("damaged"), b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := delta.Open(t.Context(), file("damaged")); err == nil {
			t.Fatalf("byte %d is damaged, and nothing is reported", at)
		}
	}
	if _, err := os.Stat(file("none")); err == nil {
		t.Error("a refused command wrote a file")
	}
}

// resealed writes a forged delta with a checksum that matches.
func resealed(path string, b []byte) error {
	sum := sha256.Sum256(b[:len(b)-sha256.Size])
	return os.WriteFile(path, append(b[:len(b)-sha256.Size], sum[:]...), 0o644)
}

// A forged delta never gives another bundle than it names, and never takes the process down.
func FuzzForged(f *testing.F) {
	dir := f.TempDir()
	f.Add(uint32(20), byte(1))
	f.Add(uint32(900), byte(0x80))
	var whole []byte
	f.Fuzz(func(t *testing.T, at uint32, flip byte) {
		if whole == nil {
			old := write(t, filepath.Join(dir, "old"), "linux/amd64", bundle.Fastest, machineCode(9000, nil, 0), noise(1, 300), noise(2, 500))
			now := write(t, filepath.Join(dir, "new"), "linux/amd64", bundle.Fastest, machineCode(9000, []byte("more"), 2400), noise(1, 300), noise(2, 600))
			if _, err := delta.Create(t.Context(), old, now, filepath.Join(dir, "delta"), delta.Options{Stage: stage}); err != nil {
				t.Fatal(err)
			}
			var err error
			if whole, err = os.ReadFile(filepath.Join(dir, "delta")); err != nil {
				t.Fatal(err)
			}
		}
		b := bytes.Clone(whole)
		b[int(at)%(len(b)-sha256.Size)] ^= flip
		if err := resealed(filepath.Join(dir, "forged"), b); err != nil {
			t.Fatal(err)
		}
		d, err := delta.Open(t.Context(), filepath.Join(dir, "forged"))
		if err != nil {
			return
		}
		defer d.Close()
		old, err := bundle.Open(filepath.Join(dir, "old"))
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		result := filepath.Join(dir, "result")
		if _, err := d.Apply(t.Context(), old, result, stage); err == nil {
			same(t, filepath.Join(dir, "new"), result)
		}
	})
}
