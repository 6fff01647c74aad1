package run_test

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"airlift/installer/multihost/live"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/modelsite"
)

// odd are hosts one of which runs another command in the place of one of its own. Its processes are real.
type odd struct {
	*modelsite.World
	name, command string
	instead       []string
}

type oddConn struct {
	remote.Conn
	odd
}

func (o odd) Dial(ctx context.Context, h spec.Host) (remote.Conn, error) {
	c, err := o.World.Dial(ctx, h)
	if err == nil && h.Name == o.name {
		c = oddConn{c, o}
	}
	return c, err
}

func (c oddConn) Run(ctx context.Context, cmd remote.Command) error {
	if !strings.Contains(strings.Join(cmd.Args, " "), c.command) {
		return c.Conn.Run(ctx, cmd)
	}
	process := exec.CommandContext(ctx, c.instead[0], c.instead[1:]...)
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGINT) }
	process.Stdout = cmd.Stdout
	if err := process.Run(); ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// A host that does not answer, or prints without an end, ends no command and fills no memory: it is named, with what was seen last, and
// the others are asked.
func TestHostsThatDoNotAnswer(t *testing.T) {
	defer run.SetAnswerTime(300 * time.Millisecond)()
	c, file := aCluster(), aFile(t, oldVersion)
	w := modelsite.New(c)
	for _, command := range []string{"uname -m", "mkdir -p /var/lib/airlift/cluster", "cluster host facts"} {
		for name, instead := range map[string][]string{
			"no answer within 300ms; last seen: nothing was printed":        {"sleep", "1000"},
			`no answer within 300ms; last seen: 12 B were printed`:          {"sh", "-c", "echo; echo one moment; exec sleep 1000"},
			`it printed more than 67.1 MB; last seen: 67.1 MB were printed`: {"yes"},
		} {
			if strings.HasPrefix(name, "it printed") {
				defer run.SetAnswerTime(10 * time.Minute)() // a loaded machine prints slowly
			}
			s := &run.Site{Cluster: c, File: file, Dialer: odd{w, "w1", command, instead}, Display: live.New(io.Discard, true), Parallel: 5, Who: "a test"}
			if err := s.Gather(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			answers := s.Answers()
			for _, h := range c.Hosts {
				if a := answers[h.Name]; (a.Err == nil) != (h.Name != "w1") {
					t.Errorf("%s: %s: %s: %v", command, name, h.Name, a.Err)
				}
			}
			err := answers["w1"].Err
			if err == nil || !strings.HasPrefix(err.Error(), "the host does not answer: "+name) || len(err.Error()) > 400 || fault.Hint(err) == "" || fault.ExitCode(err) != fault.Failure {
				t.Errorf("%s: %v, want %s", command, err, name)
			}
			_, problems := plan.Make(plan.Input{Spec: c, Answers: answers, Version: oldVersion, Bundle: file.Bundle.ID(), Arch: "amd64"})
			if !slices.ContainsFunc(problems, func(p plan.Problem) bool {
				return p.Host == "w1" && strings.Contains(p.Why, "does not answer") && strings.Contains(p.Hint, "--skip w1")
			}) {
				t.Errorf("%+v", problems)
			}
			s.Discard(t.Context())
			s.Close()
			run.SetAnswerTime(300 * time.Millisecond)
		}
	}
}

// slowDisk are hosts one of which takes a file in steps, with a pause before each, and hangs after the last step.
type slowDisk struct {
	*modelsite.World
	name  string
	pause time.Duration
	steps int64
	hangs bool
}

type slowConn struct {
	remote.Conn
	slowDisk
}

func (s slowDisk) Dial(ctx context.Context, h spec.Host) (remote.Conn, error) {
	c, err := s.World.Dial(ctx, h)
	if err == nil && h.Name == s.name {
		c = slowConn{c, s}
	}
	return c, err
}

func (c slowConn) Send(ctx context.Context, f remote.File, moved func(int64)) (int64, error) {
	for i := range c.steps {
		time.Sleep(c.pause)
		moved(f.Size * i / c.steps)
	}
	if c.hangs {
		<-ctx.Done()
		return 0, &remote.LostError{Host: c.name, Err: context.Cause(ctx)}
	}
	return c.Conn.Send(ctx, f, moved)
}

// A copy to a slow disk ends, however long it takes. One to a disk that hangs is an error that says how far it came.
func TestCopiesThatDoNotMove(t *testing.T) {
	defer run.SetSendTime(300 * time.Millisecond)()
	c, file := aCluster(), aFile(t, oldVersion)
	for name, disk := range map[string]slowDisk{
		"": {name: "w1", pause: 50 * time.Millisecond, steps: 20},
		"the host does not take /var/lib/airlift/cluster/next-": {name: "w1", pause: time.Millisecond, steps: 2, hangs: true},
	} {
		disk.World = modelsite.New(c)
		s := &run.Site{Cluster: c, File: file, Dialer: disk, Display: live.New(io.Discard, true), Parallel: 5, Who: "a test"}
		if err := s.Gather(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		switch err := s.Answers()["w1"].Err; {
		case name == "" && err != nil:
			t.Errorf("a slow disk: %v", err)
		case name != "" && (err == nil || !strings.HasPrefix(err.Error(), name) || !strings.Contains(err.Error(), "nothing moved for 300ms; last seen: ") || fault.Hint(err) == ""):
			t.Errorf("a disk that hangs: %v", err)
		}
		s.Close()
	}
}
