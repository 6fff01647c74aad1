package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"airlift/scripts/rig"
)

// fill writes keys, changes some and deletes some. It returns how many exist at the end.
func fill(t *testing.T, c *Client) int {
	t.Helper()
	for i := range 40 {
		if _, err := c.api.Put(t.Context(), fmt.Sprintf("/registry/configmaps/%03d", i%30), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		if _, err := c.api.Delete(t.Context(), fmt.Sprintf("/registry/configmaps/%03d", i)); err != nil {
			t.Fatal(err)
		}
	}
	return 25
}

// snapshot saves a snapshot of a member and returns its path.
func (s *servers) snapshot(c *Client) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "snapshot.db")
	f, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(c.Snapshot(s.t.Context(), f), f.Close()); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// TestSnapshot compares with etcdutl of the same version.
func TestSnapshot(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		t.Run(version, func(t *testing.T) {
			s := newServersOf(t, version)
			etcdutl := rig.Component(t, version, "etcdutl")
			m := s.make("one")
			s.start(m)
			c := s.connect(m)
			keys := fill(t, c)
			path := s.snapshot(c)
			got, err := VerifySnapshot(path)
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(etcdutl, "snapshot", "status", path, "-w", "json").Output()
			if err != nil {
				t.Fatal(err)
			}
			var want struct {
				Hash                uint32
				Revision            int64
				TotalKey, TotalSize int64
			}
			if err := json.Unmarshal(out, &want); err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v; etcdutl: %s", got, out)
			if got.Hash != want.Hash || got.Revision != want.Revision || got.Keys != keys || got.Size != want.TotalSize+32 {
				t.Errorf("%+v, want %d keys; etcdutl: %s", got, keys, out)
			}
			// etcdutl v3.5 counts all keys in the history, also those that were deleted.
			if version != "v1.29.15" && int64(got.Keys) != want.TotalKey {
				t.Errorf("%d keys, etcdutl counts %d", got.Keys, want.TotalKey)
			}
		})
	}
}

func TestDamagedSnapshot(t *testing.T) {
	s := newServers(t)
	m := s.make("one")
	s.start(m)
	c := s.connect(m)
	fill(t, c)
	good, err := os.ReadFile(s.snapshot(c))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"empty":              func([]byte) []byte { return nil },
		"shorter by a byte":  func(b []byte) []byte { return b[:len(b)-1] },
		"half":               func(b []byte) []byte { return b[:len(b)/2/512*512] },
		"half, and 32 bytes": func(b []byte) []byte { return b[:len(b)/2/512*512+32] },
		"one bit":            func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"no checksum":        func(b []byte) []byte { return b[:len(b)-32] },
		"longer":             func(b []byte) []byte { return append(b, make([]byte, 512)...) },
	} {
		path := filepath.Join(t.TempDir(), "snapshot.db")
		if err := os.WriteFile(path, damage(append([]byte(nil), good...)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := VerifySnapshot(path); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
