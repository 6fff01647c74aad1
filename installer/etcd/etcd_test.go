package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/rig"
)

// The tests run real members on loopback, with the same certificates as on a
// control plane.

type server struct {
	name, client, peer, dir string
	cmd                     *exec.Cmd
}

type servers struct {
	t       *testing.T
	program string
	certs   string
	tls     *tls.Config
	all     []*server
}

func newServers(t *testing.T) *servers { return newServersOf(t, "v1.29.15") }

// newServersOf uses the etcd of a Kubernetes version.
func newServersOf(t *testing.T, version string) *servers {
	program := rig.Component(t, version, "etcd")
	cfg := &config.Config{Facts: config.Facts{Hostname: "host"}}
	cfg.Facts.NodeIP = "127.0.0.1"
	cfg.KubernetesVersion = "v1.29.15"
	cfg.CertificatesDir = "/etc/kubernetes/pki"
	cfg.CompleteInit()
	made, err := pki.Ensure(cfg, fstest.MapFS{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := &servers{t: t, program: program, certs: t.TempDir()}
	for _, f := range made.Files {
		path := filepath.Join(s.certs, strings.TrimPrefix(f.Path, "/etc/kubernetes/pki/"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, f.Data, fs.FileMode(0o600))); err != nil {
			t.Fatal(err)
		}
	}
	s.tls, err = TLS(s.file("etcd/ca.crt"), s.file("etcd/healthcheck-client.crt"), s.file("etcd/healthcheck-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *servers) file(name string) string { return filepath.Join(s.certs, name) }

// make returns a member that does not run yet.
func (s *servers) make(name string) *server {
	s.t.Helper()
	ports, err := port.Free(2)
	if err != nil {
		s.t.Fatal(err)
	}
	urls := [2]string{fmt.Sprint("https://127.0.0.1:", ports[0]), fmt.Sprint("https://127.0.0.1:", ports[1])}
	m := &server{name: name, client: urls[0], peer: urls[1], dir: filepath.Join(s.t.TempDir(), name)}
	s.all = append(s.all, m)
	return m
}

// start starts a member. members are the members of its cluster, including
// itself.
func (s *servers) start(m *server, members ...Member) {
	s.t.Helper()
	m.cmd = s.command(m, members...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd := m.cmd
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

func (s *servers) command(m *server, members ...Member) *exec.Cmd {
	state, cluster := "new", []string{m.name + "=" + m.peer}
	if members != nil {
		state, cluster = "existing", nil
		for _, o := range members {
			if o.PeerURL == m.peer {
				o.Name = m.name
			}
			cluster = append(cluster, o.Name+"="+o.PeerURL)
		}
	}
	return exec.Command(s.program, "--name", m.name, "--data-dir", m.dir, "--log-level", "error",
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", state,
		"--cert-file", s.file("etcd/server.crt"), "--key-file", s.file("etcd/server.key"), "--trusted-ca-file", s.file("etcd/ca.crt"), "--client-cert-auth",
		"--peer-cert-file", s.file("etcd/peer.crt"), "--peer-key-file", s.file("etcd/peer.key"), "--peer-trusted-ca-file", s.file("etcd/ca.crt"), "--peer-client-cert-auth")
}

func (s *servers) stop(m *server) {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

// connect returns a client once the first of the members answers.
func (s *servers) connect(ms ...*server) *Client {
	s.t.Helper()
	var urls []string
	for _, m := range ms {
		urls = append(urls, m.client)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		c, err := Connect(s.t.Context(), urls, s.tls, nil)
		if err == nil {
			s.t.Cleanup(func() { _ = c.Close() })
			c.Timeout = 20 * time.Second
			return c
		}
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
}

// grow uses c to add a voting member, and starts it.
func (s *servers) grow(c *Client, name string) *server {
	s.t.Helper()
	m := s.make(name)
	members, added, err := c.AddLearner(s.t.Context(), m.peer)
	if err != nil || !added {
		s.t.Fatal(added, err)
	}
	s.start(m, members...)
	if changed, err := c.Promote(s.t.Context(), m.peer); err != nil || !changed {
		s.t.Fatal(changed, err)
	}
	return m
}

func (s *servers) list(c *Client) string {
	s.t.Helper()
	members, err := c.Members(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, m := range members {
		name := m.Name
		if m.Learner {
			name += "*"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func (s *servers) member(c *Client, of *server) Member {
	s.t.Helper()
	members, err := c.Members(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	m, ok := Find(members, of.peer)
	if !ok {
		s.t.Fatalf("%s is not among %v", of.name, members)
	}
	return m
}

func TestMembership(t *testing.T) {
	s := newServers(t)
	one := s.make("one")
	s.start(one)
	c := s.connect(one)
	if err := c.CheckRemove(t.Context(), s.member(c, one)); err != nil {
		t.Errorf("the last member may go: %v", err)
	}

	two := s.make("two")
	members, added, err := c.AddLearner(t.Context(), two.peer)
	if err != nil || !added || len(members) != 2 {
		t.Fatal(members, added, err)
	}
	// If a run is interrupted here, the next one finds its learner.
	again, added, err := c.AddLearner(t.Context(), two.peer)
	if err != nil || added || len(again) != 2 {
		t.Fatal(again, added, err)
	}
	if err := c.CheckHealthy(t.Context(), two.peer); err != nil {
		t.Errorf("a learner that is about to start is no illness: %v", err)
	}
	if err := c.CheckNoLearner(t.Context()); err == nil || !strings.Contains(fault.Hint(err), s.member(c, two).RemoveCommand()) {
		t.Errorf("a rotation may begin while a host joins: %v", err)
	}
	// Another learner is refused meanwhile, and the error names the reason.
	c.Timeout = 2 * time.Second
	_, _, err = c.AddLearner(t.Context(), "https://127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "too many learner") {
		t.Errorf("a second learner: %v", err)
	}
	// A learner cannot be promoted before it runs.
	_, err = c.Promote(t.Context(), two.peer)
	if err == nil || !strings.Contains(err.Error(), "in sync") || !strings.Contains(err.Error(), "gave up after 2s") {
		t.Errorf("promoting a learner that does not run: %v", err)
	}
	c.Timeout = 20 * time.Second
	s.start(two, members...)
	if changed, err := c.Promote(t.Context(), two.peer); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if changed, err := c.Promote(t.Context(), two.peer); err != nil || changed {
		t.Errorf("promoting a voter: %v %v", changed, err)
	}
	if _, added, err := c.AddLearner(t.Context(), two.peer); err != nil || added {
		t.Errorf("adding a voter: %v %v", added, err)
	}
	three := s.grow(c, "three")
	if got := len(strings.Fields(s.list(c))); got != 3 {
		t.Fatal(s.list(c))
	}
	if err := c.CheckHealthy(t.Context(), ""); err != nil {
		t.Error(err)
	}
	for _, m := range []*server{one, two, three} {
		if err := c.CheckRemove(t.Context(), s.member(c, m)); err != nil {
			t.Errorf("three healthy members spare one: %v", err)
		}
	}

	// One member is down: the cluster works, but must not lose another one.
	s.stop(three)
	c = s.connect(one, two, three)
	if err := c.CheckHealthy(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "three (") {
		t.Errorf("health with a dead member: %v", err)
	}
	err = c.CheckRemove(t.Context(), s.member(c, one))
	if err == nil || !strings.Contains(err.Error(), "three (") || !strings.Contains(err.Error(), "1 of the 2 other voting members are healthy, 2 are needed") || fault.Hint(err) == "" {
		t.Errorf("removing a healthy member of a cluster with a dead one: %v", err)
	}
	if err := c.CheckRemove(t.Context(), s.member(c, three)); err != nil {
		t.Errorf("removing the dead one: %v", err)
	}
	gone := s.member(c, three)
	err = c.CheckRestart(t.Context(), one.peer)
	if err == nil || !strings.Contains(err.Error(), "would have no quorum while its member one (") || !strings.Contains(fault.Hint(err), gone.RemoveCommand()) {
		t.Errorf("restarting one of two healthy members of three: %v, hint %q", err, fault.Hint(err))
	}
	if err := c.CheckRestart(t.Context(), three.peer); err != nil {
		t.Errorf("restarting the dead one: %v", err)
	}
	if changed, err := c.Remove(t.Context(), gone); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if changed, err := c.Remove(t.Context(), gone); err != nil || changed {
		t.Errorf("removing it again: %v %v", changed, err)
	}
	if err := c.CheckRestart(t.Context(), one.peer); err != nil {
		t.Errorf("restarting one of two: %v", err)
	}

	// A member that removes itself must send the request to other members.
	four := s.grow(c, "four")
	own := s.connect(four)
	if changed, err := own.Remove(t.Context(), s.member(own, four)); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if own = s.connect(two); len(strings.Fields(s.list(own))) != 2 {
		t.Fatal(s.list(own))
	}

	// Two members are left and one of them dies: the error reports the lost
	// quorum.
	s.stop(two)
	c = s.connect(one)
	err = c.CheckRemove(t.Context(), s.member(c, one))
	if err == nil || !strings.Contains(err.Error(), "no quorum now: 1 of its 2") || !strings.Contains(err.Error(), "two (") {
		t.Errorf("removing one of two whose other is dead: %v", err)
	}
}

// TestOneOfTwoLeaves: with two members, both must agree to the removal of one.
func TestOneOfTwoLeaves(t *testing.T) {
	s := newServers(t)
	one := s.make("one")
	s.start(one)
	two := s.grow(s.connect(one), "two")
	own := s.connect(two)
	m := s.member(own, two)
	if err := own.CheckRemove(t.Context(), m); err != nil {
		t.Error(err)
	}
	if changed, err := own.Remove(t.Context(), m); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if got := s.list(s.connect(one)); got != "one" {
		t.Errorf("left are: %s", got)
	}
}

func TestNobodyThere(t *testing.T) {
	s := newServers(t)
	one := s.make("one")
	_, err := Connect(t.Context(), []string{one.client}, s.tls, nil)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("an endpoint that nobody listens at: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Connect(ctx, []string{one.client}, s.tls, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestSurvives(t *testing.T) {
	down := errors.New("down")
	states := func(errs ...error) (list []State) {
		for i, err := range errs {
			list = append(list, State{Member{ID: uint64(i + 1), Name: fmt.Sprintf("m%d", i+1)}, err})
		}
		return list
	}
	for _, tt := range []struct {
		name   string
		states []State
		gone   uint64
		ok     bool
	}{
		{"the only one", states(nil), 1, true},
		{"the only one, not running", states(down), 1, true},
		{"one of two", states(nil, nil), 1, true},
		{"the dead one of two", states(nil, down), 2, false}, // etcd itself cannot commit this
		{"the living one of two", states(nil, down), 1, false},
		{"one of three", states(nil, nil, nil), 3, true},
		{"the dead one of three", states(nil, nil, down), 3, true},
		{"a living one of three", states(nil, nil, down), 1, false},
		{"any, with two of three dead", states(nil, down, down), 2, false},
		{"one of four", states(nil, nil, nil, nil), 1, true},
		{"a living one of four with one dead", states(nil, nil, nil, down), 1, true},
		{"a living one of five with one dead", states(nil, nil, nil, nil, down), 1, true},
		{"a living one of five with two dead", states(nil, nil, nil, down, down), 1, false},
	} {
		_, err := Without(tt.states, Member{ID: tt.gone})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	learner := append(states(nil, down, nil), State{Member{ID: 9, Learner: true}, nil})
	if _, err := Without(learner, Member{ID: 9, Learner: true}); err != nil {
		t.Errorf("a learner has no vote to miss: %v", err)
	}
}
