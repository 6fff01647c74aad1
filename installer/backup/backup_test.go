package backup

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"airlift/installer/etcd"
	"airlift/scripts/fixtures/rig"
)

// archive writes a backup with a snapshot of random bytes, and returns both.
func archive(t *testing.T, recipients ...age.Recipient) (file, snapshot []byte) {
	t.Helper()
	snapshot = make([]byte, 300_000)
	if _, err := rand.Read(snapshot); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	m := Manifest{Created: time.Date(2026, 11, 23, 10, 0, 0, 5, time.UTC), KubernetesVersion: "v1.37.1", Snapshot: etcd.Snapshot{Keys: 7, Size: int64(len(snapshot))}}
	var out bytes.Buffer
	files := []File{{ConfigName, []byte("kind: ClusterConfiguration\n")}, {PKIDir + "ca.crt", []byte("ca")}, {PKIDir + "ca.key", []byte("secret")}}
	if err := Write(&out, m, path, files, recipients...); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), snapshot
}

func TestWriteAndRead(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		to   []age.Recipient
		with []age.Identity
	}{"plain": {}, "encrypted": {[]age.Recipient{key.Recipient()}, []age.Identity{key}}} {
		file, snapshot := archive(t, c.to...)
		var got bytes.Buffer
		b, err := Read(bytes.NewReader(file), &got, c.with...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(got.Bytes(), snapshot) || string(b.Files[PKIDir+"ca.key"]) != "secret" || b.Manifest.Snapshot.Keys != 7 || b.Encrypted != (c.to != nil) || len(b.Manifest.Entries) != 4 {
			t.Errorf("%s: %+v", name, b)
		}
		m, err := ReadManifest(bytes.NewReader(file), c.with...)
		if err != nil || m.KubernetesVersion != "v1.37.1" {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestBadFiles(t *testing.T) {
	key, _ := age.GenerateX25519Identity()
	other, _ := age.GenerateX25519Identity()
	plain, _ := archive(t)
	encrypted, _ := archive(t, key.Recipient())
	flip := func(b []byte, at int) []byte { b = bytes.Clone(b); b[at] ^= 1; return b }
	for _, c := range []struct {
		name string
		file []byte
		with []age.Identity
		want error
	}{
		{"empty", nil, nil, ErrNotBackup},
		{"text", []byte(strings.Repeat("some text\n", 200)), nil, ErrNotBackup},
		{"short text", []byte("text\n"), nil, ErrNotBackup},
		{"the first bytes", plain[:100], nil, ErrTruncated},
		{"half", plain[:len(plain)/2], nil, ErrTruncated},
		{"without its last entry", plain[:2048], nil, ErrTruncated},
		{"one bit of the snapshot", flip(plain, len(plain)/2), nil, ErrDamaged},
		{"no key", encrypted, nil, ErrEncrypted},
		{"another key", encrypted, []age.Identity{other}, ErrOtherKey},
		{"half of an encrypted one", encrypted[:len(encrypted)/2], []age.Identity{key}, nil},
		{"encrypted, without its last byte", encrypted[:len(encrypted)-1], []age.Identity{key}, nil},
		{"one bit of an encrypted one", flip(encrypted, len(encrypted)/2), []age.Identity{key}, ErrDamaged},
	} {
		b, err := Read(bytes.NewReader(c.file), io.Discard, c.with...)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v (%v)", c.name, err, c.want, b)
		}
		t.Logf("%s: %v", c.name, err)
	}
}

// TestEveryCut cuts a backup at many places: none may be accepted.
func TestEveryCut(t *testing.T) {
	file, _ := archive(t)
	end := len(file) - 1024 // two blocks of zeros, which tar does not need
	for n := 0; n < end; n += 997 {
		if _, err := Read(bytes.NewReader(file[:n]), io.Discard); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(file))
		}
	}
}

// TestStockTools opens backups with tar and with age's own command.
func TestStockTools(t *testing.T) {
	tar := rig.Tool(t, "tar")
	dir := t.TempDir()
	program := filepath.Join(dir, "age")
	if out, err := exec.Command("go", "build", "-o", program, "filippo.io/age/cmd/age").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	encrypted, snapshot := archive(t, key.Recipient())
	identity, file, plain := filepath.Join(dir, "key.txt"), filepath.Join(dir, "backup.tar.age"), filepath.Join(dir, "backup.tar")
	for name, data := range map[string][]byte{identity: []byte(key.String() + "\n"), file: encrypted} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{
		{program, "-d", "-i", identity, "-o", plain, file},
		{tar, "-x", "-f", plain, "-C", dir},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, SnapshotName))
	if err != nil || !bytes.Equal(got, snapshot) {
		t.Errorf("tar extracts another snapshot: %v", err)
	}
}
