package run_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"airlift/installer/multihost/live"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/modelsite"
	"airlift/scripts/fixtures/seed"
)

// acts reports whether a command changes a host or the cluster.
func acts(line string) bool {
	return slices.ContainsFunc([]string{" init ", " join ", " upgrade ", " reconfigure ", " registry enable", " endpoint ", " node remove ", " reset ", "cluster host nodes", "cluster host gate"},
		func(verb string) bool { return strings.Contains(line, verb) }) && !strings.Contains(line, "preflight") && !strings.Contains(line, "--plan")
}

// what a command may change on a host.
func what(m *modelsite.Machine) string {
	return fmt.Sprint(m.Version, m.Unpacked, m.Unfinished, m.Config, m.Labels)
}

// The lock of a host is lost at any command of a run. If it is not proven that no other driver had it, nothing begins any more, on any
// host, and the error names the host. If it is, the run goes on to its end.
func TestLockIsLost(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	c, old, newer := aCluster(), aFile(t, oldVersion), aFile(t, newVersion)
	slept := atomic.Int64{}
	defer run.SetSinceStart(func() time.Duration { return time.Duration(slept.Load()) })()
	undisturbed := modelsite.New(c)
	defer func() {
		if len(undisturbed.Unlocked) > 0 {
			t.Errorf("without the lock: %q", undisturbed.Unlocked)
		}
	}()
	applied(t, undisturbed, c, old, oldVersion)
	applied(t, undisturbed, c, newer, newVersion)
	seen := map[string]int{}
	for tries := 0; tries < 50 || len(seen) < 4 && tries < 500; tries++ {
		w := modelsite.New(c)
		d := &driver{w: w, c: c, file: old, version: oldVersion}
		if random.IntN(2) == 0 {
			applied(t, w, c, old, oldVersion)
			d.file, d.version = newer, newVersion
		}
		kind := []string{"its command ends", "this machine sleeps", "the connection is cut", "the connection is cut, and another driver comes"}[random.IntN(4)]
		host, n, at, before := c.Hosts[random.IntN(len(c.Hosts))].Name, random.IntN(60), 0, ""
		m := w.Hosts[host]
		w.Kill = func(int) int {
			switch line := w.Seen[len(w.Seen)-1]; {
			case at > 0 && before == "" && !w.Lost[host]: // it is lost with the next command there
				before, at = what(m), len(w.Seen)-1
			case at > 0 || m.Lock == "" || !acts(line):
			case n > 0:
				n--
			case kind == "its command ends":
				at = len(w.Seen)
				m.EndLock(&remote.ExitError{Host: host, Code: 1, Stderr: "error: the driver has not reported for 1m0s"})
				return 4
			case kind == "this machine sleeps":
				at = len(w.Seen)
				slept.Add(int64(10 * time.Minute))
			default:
				at = len(w.Seen)
				w.Lost[host] = true
			}
			if at > 0 && strings.HasSuffix(kind, "comes") && m.Lock == "" {
				m.LastLock = "bob@desk, pid 12, cluster apply"
			}
			return 0
		}
		err := d.apply(t.Context())
		w.Kill = nil
		story := fmt.Sprintf("%s of %s at %d of %d: %v\n%s\n%s", kind, host, at, len(w.Seen), err, d.out.String(), strings.Join(w.Seen[max(0, at-1):], "\n"))
		if len(w.Unlocked) > 0 {
			t.Fatalf("without the lock: %q\n%s", w.Unlocked, story)
		}
		if at == 0 || w.Lost[host] { // the run was over
			if err != nil {
				t.Fatal(story)
			}
			continue
		}
		seen[kind]++
		acted, began := 0, 0 // began: before the machine slept
		for _, line := range w.Seen[at:] {
			if acts(line) {
				acted++
			}
		}
		if kind == "this machine sleeps" {
			began = 4
		}
		switch {
		case kind == "the connection is cut":
			if err != nil {
				t.Fatal(story)
			}
			continue
		case strings.HasSuffix(kind, "comes") && before != "" && what(m) != before:
			t.Fatal(story)
		case strings.HasSuffix(kind, "comes") && err == nil && acted == 0: // it only compared the hosts with the file
			continue
		case !strings.HasSuffix(kind, "comes") && acted > began, err == nil:
			t.Fatal(story)
		}
		if kind != "this machine sleeps" && !strings.HasPrefix(err.Error(), host+": the lock of this host was lost") || !strings.Contains(err.Error(), "the lock of this host was lost") ||
			fault.ExitCode(err) != fault.Failure || !strings.Contains(fault.Hint(err), "run the same command again") {
			t.Fatalf("%s\nexit code %d, hint %q", story, fault.ExitCode(err), fault.Hint(err))
		}
		for _, h := range w.Hosts {
			if h.Lock != "" {
				t.Fatalf("%s keeps its lock: %s", h.Name, story)
			}
		}
		applied(t, w, c, d.file, d.version) // the same command again
	}
	for _, kind := range []string{"its command ends", "this machine sleeps", "the connection is cut", "the connection is cut, and another driver comes"} {
		if seen[kind] == 0 {
			t.Errorf("no run: %s: %v", kind, seen)
		}
	}
}

// While the connection to the first control plane is made again, hosts that join wait for its lock.
func TestNothingRunsBeforeTheLockIsBack(t *testing.T) {
	c, file := aCluster(), aFile(t, oldVersion)
	worker := c.Hosts[len(c.Hosts)-1]
	for n := 3; n < 9; n++ {
		worker.Name = fmt.Sprint("w", n)
		worker.SSH.Address = worker.Name
		c.Hosts = append(c.Hosts, worker)
	}
	again := 0
	for n := range 24 { // the command of the first control plane after its init that loses the connection, or only its session
		w := modelsite.New(c)
		lost := w.Lost
		if w.Cut = map[string]bool{}; n >= 12 {
			lost, n = w.Cut, n-12
		}
		w.Kill = func(int) int {
			if leader := w.Hosts["cp1"]; leader.Version != "" && leader.Lock != "" && strings.Contains(w.Seen[len(w.Seen)-1], "cluster host") {
				if n--; n == -1 {
					lost["cp1"] = true
				}
			}
			return 0
		}
		d := &driver{w: w, c: c, file: file, version: oldVersion}
		if err := d.apply(t.Context()); err != nil || len(w.Unlocked) > 0 {
			t.Errorf("%v; without the lock: %q", err, w.Unlocked)
		}
		if strings.Contains(d.out.String(), "connecting again") {
			again++
		}
	}
	if again < 12 {
		t.Errorf("%d connections were made again", again)
	}
}

// A reset and the commands for all nodes stop, too.
func TestLockIsLostInOtherCommands(t *testing.T) {
	for _, command := range []struct {
		name string
		do   func(*run.Site) error
		acts string
	}{
		{"reset", func(s *run.Site) error { return s.Reset(t.Context()) }, " reset "},
		{"certs renew", func(s *run.Site) error {
			if err := s.Gather(t.Context(), true); err != nil {
				return err
			}
			nodes, err := s.Nodes(spec.ControlPlane)
			if err != nil {
				return err
			}
			return s.InTurn(t.Context(), "renew", nodes, "certs", "renew", "all")
		}, " certs renew"},
	} {
		c, file := aCluster(), aFile(t, oldVersion)
		w := modelsite.New(c)
		applied(t, w, c, file, oldVersion)
		s := &run.Site{Cluster: c, File: file, Dialer: w, Display: live.New(io.Discard, true), Parallel: 3, Who: "a test"}
		lost := 0
		w.Kill = func(int) int {
			if lost > 0 || !strings.Contains(w.Seen[len(w.Seen)-1], command.acts) {
				return 0
			}
			lost = len(w.Seen)
			w.Hosts["cp1"].EndLock(&remote.ExitError{Host: "cp1", Code: 1, Stderr: "error: the driver has not reported for 1m0s"})
			return 4
		}
		err := command.do(s)
		s.Close()
		if err == nil || !strings.HasPrefix(err.Error(), "cp1: the lock of this host was lost") || slices.ContainsFunc(w.Seen[lost:], func(line string) bool { return strings.Contains(line, command.acts) }) {
			t.Errorf("%s: %v\n%s", command.name, err, strings.Join(w.Seen[lost:], "\n"))
		}
	}
}

// heldConn does something before the lock is taken.
type heldConn struct {
	remote.Conn
	before func(context.Context) error
}

func (c heldConn) Run(ctx context.Context, cmd remote.Command) error {
	if slices.Contains(cmd.Args, "hold") {
		if err := c.before(ctx); err != nil {
			return err
		}
	}
	return c.Conn.Run(ctx, cmd)
}

type heldWorld struct {
	*modelsite.World
	before func(context.Context) error
}

func (w heldWorld) Dial(ctx context.Context, h spec.Host) (remote.Conn, error) {
	c, err := w.World.Dial(ctx, h)
	return heldConn{c, w.before}, err
}

// The wait for a lock ends with the command, and on a host that does not answer. A host that takes long for it has the lock nevertheless.
func TestLockTakesLong(t *testing.T) {
	slept := atomic.Int64{}
	defer run.SetSinceStart(func() time.Duration { return time.Duration(slept.Load()) })()
	hangs := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for name, test := range map[string]struct {
		before func(context.Context) error
		limit  time.Duration // of the command; 0: none
		want   string
	}{
		"slow":        {before: func(context.Context) error { slept.Add(int64(2 * time.Minute)); return nil }},
		"hangs":       {hangs, 0, "cp1: locking the host: no answer within 100ms"},
		"interrupted": {hangs, 50 * time.Millisecond, "cp1: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			c, file := aCluster(), aFile(t, oldVersion)
			w := modelsite.New(c)
			applied(t, w, c, file, oldVersion)
			s := &run.Site{Cluster: c, File: file, Dialer: heldWorld{w, test.before}, Display: live.New(io.Discard, true), Parallel: 3, Who: "a test"}
			defer s.Close()
			if err := s.Gather(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			nodes, err := s.Nodes(spec.ControlPlane)
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if test.limit > 0 {
				limited, cancel := context.WithTimeout(ctx, test.limit)
				defer cancel()
				ctx = limited
			} else if test.want != "" {
				defer run.SetAnswerTime(100 * time.Millisecond)()
			}
			err = s.InTurn(ctx, "renew", nodes[:1], "certs", "renew", "all")
			if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.HasPrefix(got, test.want) && test.want != "" {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
