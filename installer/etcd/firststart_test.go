package etcd

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/crash"
)

// The real etcd, killed at its first start after it created the write-ahead log, never becomes
// ready with what it left.
func TestFirstStartInterrupted(t *testing.T) {
	s := newServers(t)
	m := s.make("interrupted")
	created := false
	killed, err := crash.Run(s.command(m), func(c crash.Call) bool {
		if created {
			return true
		}
		created = strings.HasPrefix(c.Name, "rename") && path.Base(c.Path) == "wal"
		return false
	})
	if !killed {
		t.Fatalf("etcd was not killed: %v", err)
	}
	interrupted := func() bool { return FirstStartInterrupted(m.dir) }
	if !interrupted() {
		t.Fatal("it is not found")
	}
	s.start(m)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if c, err := Connect(t.Context(), []string{m.client}, s.tls, nil); err == nil {
			c.Close()
			t.Fatal("etcd is ready, so it is not necessary to remove its data")
		}
	}
	s.stop(m)
	if !interrupted() {
		t.Fatal("it is not found after a second start")
	}
	if err := os.RemoveAll(filepath.Join(m.dir, "member")); err != nil {
		t.Fatal(err)
	}
	if interrupted() {
		t.Error("an empty directory is treated as an interrupted start")
	}
	s.start(m)
	s.connect(m)
	if interrupted() {
		t.Error("a running etcd is treated as an interrupted start")
	}
	s.stop(m)
	if interrupted() {
		t.Error("an etcd that was killed is treated as an interrupted start")
	}
}
