package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/rig"
)

// A part is an entry of a hostile archive.
type part struct {
	name string
	data []byte
	kind byte
}

// hostile returns an archive whose manifest lists these parts correctly.
func hostile(t *testing.T, change func(*Manifest), parts ...part) []byte {
	t.Helper()
	m := Manifest{Format: Format}
	for _, p := range parts {
		sum := sha256.Sum256(p.data)
		m.Entries = append(m.Entries, Entry{p.name, int64(len(p.data)), hex.EncodeToString(sum[:])})
		if p.name == SnapshotName {
			m.Snapshot.Size = int64(len(p.data))
		}
	}
	if change != nil {
		change(&m)
	}
	manifest, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, p := range append([]part{{ManifestName, manifest, tar.TypeReg}}, parts...) {
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: p.name, Size: int64(len(p.data)), Typeflag: p.kind, Mode: 0o600})); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(p.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHostileArchives: the checksums of each are correct.
func TestHostileArchives(t *testing.T) {
	snapshot, config, ca := part{SnapshotName, []byte("snapshot"), tar.TypeReg}, part{ConfigName, []byte("config"), tar.TypeReg}, part{PKIDir + "ca.crt", []byte("ca"), tar.TypeReg}
	if _, err := Read(bytes.NewReader(hostile(t, nil, config, ca, snapshot)), io.Discard); err != nil {
		t.Fatal(err)
	}
	var many []part
	for i := range 20 {
		many = append(many, part{fmt.Sprintf("files/%d", i), make([]byte, MaxFile), tar.TypeReg})
	}
	for name, file := range map[string][]byte{
		"the snapshot twice":       hostile(t, nil, config, ca, snapshot, snapshot),
		"a file twice":             hostile(t, nil, config, config, ca, snapshot),
		"no snapshot":              hostile(t, nil, config, ca),
		"no configuration":         hostile(t, nil, ca, snapshot),
		"no CA":                    hostile(t, nil, config, snapshot),
		"another size of snapshot": hostile(t, func(m *Manifest) { m.Snapshot.Size = 1 << 40 }, config, ca, snapshot),
		"80 MB of small files":     hostile(t, nil, append(many, config, ca, snapshot)...),
		"a negative size":          hostile(t, func(m *Manifest) { m.Entries[0].Size = -1 }, config, ca, snapshot),
		"bytes after the end":      append(hostile(t, nil, config, ca, snapshot), "something"...),
		"another archive after it": append(hostile(t, nil, config, ca, snapshot), hostile(t, nil, config, ca, snapshot)...),
	} {
		b, err := Read(bytes.NewReader(file), io.Discard)
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, %v", name, b != nil, err)
		}
	}
}

// counter counts bytes, and stops at a limit.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	if *c += counter(len(p)); *c > 1<<20 {
		return 0, errors.New("more than 1 MB was unpacked")
	}
	return len(p), nil
}

// TestSparseArchives: GNU tar stores a terabyte of zeros in a few bytes, in four formats.
func TestSparseArchives(t *testing.T) {
	gnu := rig.Tool(t, "tar")
	const size = 1 << 40
	for _, flags := range []string{"--format=gnu", "--format=pax --sparse-version=0.0", "--format=pax --sparse-version=0.1", "--format=pax --sparse-version=1.0"} {
		dir := t.TempDir()
		m := Manifest{Format: Format, Entries: []Entry{{SnapshotName, size, strings.Repeat("0", 64)}}}
		m.Snapshot.Size = size
		manifest, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Name: ManifestName, Size: int64(len(manifest)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(manifest); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, SnapshotName)
		if err := errors.Join(w.Flush(), os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(gnu, append(strings.Fields(flags), "--sparse", "-C", dir, "-c", SnapshotName)...)
		cmd.Stdout, cmd.Stderr = &archive, os.Stderr
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(bytes.NewReader(archive.Bytes()), new(counter)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s, %d bytes: %v", flags, archive.Len(), err)
		}
	}
}
