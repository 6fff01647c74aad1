package etcd

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// election returns the view of a member, with its own copy of the certificates.
func (s *servers) election(m *server) (e *Election, dir string) {
	s.t.Helper()
	dir = s.t.TempDir()
	s.copyCertificates(dir)
	e = NewElection(m.client, filepath.Join(dir, "ca.crt"), filepath.Join(dir, "healthcheck-client.crt"), filepath.Join(dir, "healthcheck-client.key"))
	s.t.Cleanup(func() { _ = e.Close() })
	return e, dir
}

func (s *servers) copyCertificates(dir string) {
	s.t.Helper()
	for _, name := range []string{"ca.crt", "healthcheck-client.crt", "healthcheck-client.key"} {
		data, err := os.ReadFile(s.file("etcd/" + name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// waitRole asks until the role is as wanted.
func waitRole(t *testing.T, e *Election, wanted func(Role, error) bool) Role {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		role, err := ask(t, e)
		if wanted(role, err) {
			return role
		}
		if time.Now().After(deadline) {
			t.Fatalf("the role is %+v, %v", role, err)
		}
	}
}

func ask(t *testing.T, e *Election) (Role, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return e.Role(ctx)
}

// TestElection: the members agree on a leader, which can be moved from each of them. A leader whose
// peers do not answer is none, also while its own state is old.
func TestElection(t *testing.T) {
	s := newServers(t)
	one := s.make("one")
	s.start(one)
	c := s.connect(one)
	list := []*server{one}
	for _, name := range []string{"two", "three"} {
		m := s.make(name)
		members, _, err := c.AddLearner(t.Context(), m.peer)
		if err != nil {
			t.Fatal(err)
		}
		s.start(m, members...)
		if name == "two" {
			learner, _ := s.election(m)
			waitRole(t, learner, func(r Role, err error) bool { return err == nil && r.Leader != 0 && !r.Leads() && len(r.Members) == 0 })
		}
		if _, err := c.Promote(t.Context(), m.peer); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	elections := make([]*Election, len(list))
	for i, m := range list {
		elections[i], _ = s.election(m)
	}
	var ids []uint64
	for i, e := range elections {
		role := waitRole(t, e, func(r Role, err error) bool { return err == nil && len(r.Peers()) == 2 })
		ids = append(ids, role.Self)
		if role.Leads() != (i == 0) {
			t.Errorf("%s: %+v", list[i].name, role)
		}
		for _, p := range role.Peers() {
			if p.Name == list[i].name || p.Host() != "127.0.0.1" {
				t.Errorf("%s has the peer %+v at %q", list[i].name, p, p.Host())
			}
		}
	}
	for _, move := range []struct{ from, to int }{{0, 1}, {0, 2}, {2, 0}} { // from the leader, from another, to itself
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := elections[move.from].Move(ctx, ids[move.to]); err != nil {
			t.Error(err)
		}
		cancel()
		if role, err := ask(t, elections[move.to]); err != nil || !role.Leads() {
			t.Errorf("after the move to %d: %+v, %v", move.to, role, err)
		}
	}
	for _, m := range list[1:] {
		_ = m.cmd.Process.Signal(syscall.SIGSTOP)
	}
	stopped := time.Now()
	waitRole(t, elections[0], func(r Role, err error) bool {
		if err == nil && r.Leads() && time.Since(stopped) > 5*time.Second {
			t.Fatal("the leader is confirmed without a majority")
		}
		return err == nil && r.Leader == 0
	})
}

// TestElectionWithNewCertificates: files that are replaced are used from then on.
func TestElectionWithNewCertificates(t *testing.T) {
	s := newServers(t)
	one := s.make("one")
	s.start(one)
	e, dir := s.election(one)
	leads := func(r Role, err error) bool { return err == nil && r.Leads() }
	waitRole(t, e, leads)
	old := e.conn
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("healthcheck-client.crt", "half of a certif")
	if role, err := ask(t, e); !leads(role, err) || e.conn != old {
		t.Errorf("while the file is written: %+v, %v", role, err)
	}
	s.copyCertificates(dir)
	if role, err := ask(t, e); !leads(role, err) || e.conn == old {
		t.Errorf("after the renewal: %+v, %v", role, err)
	}
	s.stop(one)
	s.start(one)
	waitRole(t, e, leads)
}
