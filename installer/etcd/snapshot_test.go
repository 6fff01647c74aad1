package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"airlift/scripts/fixtures/rig"
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
			members, _, err := c.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			minor := members[0].Version[:strings.LastIndexByte(members[0].Version, '.')]
			if is, err := DataVersion(path); err != nil || is != minor+".0" {
				t.Errorf("the data is of version %q, %v, want %s.0", is, err, minor)
			}
			values, err := Values(path, "/registry/configmaps/003", "/registry/configmaps/007", "/registry/configmaps/020", "/registry/configmaps/099")
			// 003 is deleted, 007 was written twice, 099 never.
			if want := (map[string][]byte{"/registry/configmaps/007": []byte("37"), "/registry/configmaps/020": []byte("20")}); err != nil || !reflect.DeepEqual(values, want) {
				t.Errorf("values %q, %v, want %q", values, err, want)
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
			// etcdutl v3.5 counts all keys in the history, including deleted keys.
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

// TestRestore restores with a new member, and compares the keys and values.
func TestRestore(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		t.Run(version, func(t *testing.T) {
			s := newServersOf(t, version)
			old := s.make("one")
			s.start(old)
			c := s.connect(old)
			fill(t, c)
			want, err := c.api.Get(t.Context(), "", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			path := s.snapshot(c)
			_, oldID, err := c.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.stop(old)

			m := s.make("two")
			db := DatabasePath(m.dir)
			if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(db)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(WriteDatabase(f, path), f.Close(), Restore(m.dir, "two", m.peer, "token")); err != nil {
				t.Fatal(err)
			}
			if FirstStartInterrupted(m.dir) {
				t.Error("the restored data look like an interrupted first start")
			}
			identity, err := RestoredIdentity("two", m.peer, "token")
			if err != nil {
				t.Fatal(err)
			}
			if is, err := ReadIdentity(m.dir); err != nil || is != identity {
				t.Errorf("before etcd starts: %s, %v; want %s", is, err, identity)
			}
			s.start(m)
			c = s.connect(m)
			if is, err := ReadIdentity(m.dir); err != nil || is != identity {
				t.Errorf("while etcd runs: %s, %v; want %s", is, err, identity)
			}
			if is, err := c.Identity(t.Context()); err != nil || is != identity {
				t.Errorf("etcd reports %s, %v; want %s", is, err, identity)
			}
			if is, err := ReadIdentity(old.dir); err != nil || is == identity || is.Cluster != oldID {
				t.Errorf("the old cluster: %s, %v; want cluster %016x", is, err, oldID)
			}
			got, err := c.api.Get(t.Context(), "", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Kvs) != len(want.Kvs) {
				t.Fatalf("%d keys, want %d", len(got.Kvs), len(want.Kvs))
			}
			for i, kv := range want.Kvs {
				if g := got.Kvs[i]; string(g.GetKey()) != string(kv.GetKey()) || string(g.GetValue()) != string(kv.GetValue()) || g.GetModRevision() != kv.GetModRevision() {
					t.Errorf("%s, want %s", g, kv)
				}
			}
			if got.Header.GetRevision() < want.Header.GetRevision()+revisionBump {
				t.Errorf("revision %d after %d", got.Header.GetRevision(), want.Header.GetRevision())
			}
			// A watch from a revision before the backup must start again.
			w := <-c.api.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(want.Header.GetRevision()+1))
			if w.CompactRevision == 0 {
				t.Errorf("a watch from the old revision continues: %+v", w)
			}
			list, id, err := c.Status(t.Context())
			if err != nil || len(list) != 1 || list[0].Name != "two" || list[0].Err != nil || !list[0].Leader || id == oldID {
				t.Errorf("%+v, cluster %x after %x, %v", list, id, oldID, err)
			}
			// The restored member accepts writes, and another member can join.
			if _, err := c.api.Put(t.Context(), "/registry/after", "restore"); err != nil {
				t.Fatal(err)
			}
			third := s.make("three")
			members, _, err := c.AddLearner(t.Context(), third.peer)
			if err != nil {
				t.Fatal(err)
			}
			s.start(third, members...)
			if _, err := c.Promote(t.Context(), third.peer); err != nil {
				t.Fatal(err)
			}
			if err := c.WaitDefragmented(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, m := range mustMembers(t, c) {
				if err := c.Defrag(t.Context(), m); err != nil {
					t.Error(err)
				}
			}
			list, _, err = c.Status(t.Context())
			if err != nil || len(list) != 2 || list[0].DBSize == 0 || list[0].DBInUse == 0 || list[1].Revision != list[0].Revision {
				t.Errorf("%+v, %v", list, err)
			}
		})
	}
}

func mustMembers(t *testing.T, c *Client) []Member {
	t.Helper()
	members, err := c.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return members
}

// TestRestoreOfOtherDatabase: what is not etcd's database is an error, and not the end of the process.
func TestRestoreOfOtherDatabase(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Dir(DatabasePath(dir)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Restore(dir, "one", "https://10.1.2.3:2380", "token"); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}
