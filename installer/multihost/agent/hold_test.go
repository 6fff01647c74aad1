package agent

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"airlift/installer/backup/target"
	"airlift/installer/host"
	"airlift/installer/multihost/plan"
	"airlift/internal/fault"
)

// holdRoot is the environment variable that makes this test binary a driver that holds the lock of a host.
const holdRoot = "AIRLIFT_TEST_HOLD"

func holdForParent(root string) {
	_, _, release, err := host.LockForDriver(root, "ann@laptop, pid 1, cluster apply", false)
	if err != nil || release == nil {
		os.Exit(3)
	}
	os.Stdout.WriteString("held\n")
	_ = Hold(context.Background(), host.OpenDamaged(root), os.Stdin, 0)
	release()
	os.Exit(0)
}

// startHolder starts another process that holds the lock.
func startHolder(t *testing.T, root string) (*exec.Cmd, io.Closer) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdRoot+"="+root)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process printed %q (%v)", line, err)
	}
	return cmd, in
}

// Pain 17: the lock names its owner and age, and a driver that is killed, or whose connection ends, leaves none.
func TestKilledDriverLeavesNoLock(t *testing.T) {
	for name, end := range map[string]func(*exec.Cmd, io.Closer){
		"killed":          func(cmd *exec.Cmd, _ io.Closer) { _ = cmd.Process.Kill() },
		"connection ends": func(_ *exec.Cmd, in io.Closer) { _ = in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			cmd, in := startHolder(t, root)
			before := time.Now().Add(-time.Minute)
			other, _, release, err := host.LockForDriver(root, "bob", false)
			if err != nil || release != nil || other.Who != "ann@laptop, pid 1, cluster apply" || other.Since.Before(before) {
				t.Fatalf("%+v, %v", other, err)
			}
			err = HeldError(other, other.Since.Add(90*time.Second))
			if text := err.Error(); !strings.Contains(text, "ann@laptop, pid 1, cluster apply, for 1m30s") || fault.Hint(err) == "" {
				t.Error(text)
			}
			end(cmd, in)
			_ = cmd.Wait()
			mine, last, release, err := host.LockForDriver(root, "bob", false)
			if err != nil || release == nil || mine.Who != "bob" || last != other {
				t.Fatalf("after the end: %+v, last %+v, %v", mine, last, err)
			}
			release()
		})
	}
}

// The lock of a driver is not the one of the commands that it runs.
func TestCommandsRunUnderTheLockOfADriver(t *testing.T) {
	root := t.TempDir()
	_, last, release, err := host.LockForDriver(root, "ann", false)
	if err != nil || last != (host.Holder{}) {
		t.Fatal(err, last)
	}
	defer release()
	_, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// A driver that lost its lock gets it again only if nobody else had it, also if its first attempt had no answer.
func TestLockAgain(t *testing.T) {
	root := t.TempDir()
	take := func(who string, again bool) (last host.Holder, taken bool) {
		_, last, release, err := host.LockForDriver(root, who, again)
		if err != nil {
			t.Fatal(err)
		}
		if release != nil {
			release()
		}
		return last, release != nil
	}
	for i, step := range []struct {
		who   string
		again bool
		last  string
		taken bool
	}{
		{"ann", true, "", true}, // the host started again
		{"ann", true, "ann", true},
		{"bob", false, "ann", true},
		{"ann", true, "bob", false},
		{"ann", true, "bob", false}, // nothing was written
		{"ann", false, "bob", true}, // a new run
	} {
		if last, taken := take(step.who, step.again); last.Who != step.last || taken != step.taken {
			t.Errorf("step %d: the last was %q, taken: %t", i, last.Who, taken)
		}
	}
}

func TestHoldEndsWithoutABeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		began := time.Now()
		go func() {
			for range 5 {
				time.Sleep(40 * time.Second)
				_, _ = out.Write([]byte("\n"))
			}
		}()
		err := Hold(t.Context(), host.OpenDamaged(t.TempDir()), in, time.Minute)
		if took := time.Since(began); fault.ExitCode(err) != fault.Failure || took != 260*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		_ = in.Close()
	})
}

func TestHoldEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, out := io.Pipe()
	defer out.Close()
	if err := Hold(ctx, host.OpenDamaged(t.TempDir()), in, 0); err != nil {
		t.Error(err)
	}
}

// TestKilledDriverLeavesNoCredentials: the connection of a killed driver ends, and its commands are not run any more.
func TestKilledDriverLeavesNoCredentials(t *testing.T) {
	root := t.TempDir()
	file, former := filepath.Join(root, plan.RegistriesDir, "auth.json"), filepath.Join(root, target.FormerConfigPath)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("secret"), 0o600), os.WriteFile(former, []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd, in := startHolder(t, root)
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(filepath.Dir(file))); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
