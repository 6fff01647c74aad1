package compile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// run runs a command and returns its output. An error includes its messages. The caller's GOFLAGS
// and workspaces do not affect the build.
func (b *Builder) run(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local", "GOOS=linux", "GOARCH=amd64", "LC_ALL=C.UTF-8")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The children of the compiler also end, for example after Ctrl-C.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		said := stderr.String()
		if said == "" {
			said = stdout.String() // go mod download -json reports errors on stdout
		}
		return nil, fmt.Errorf("running %s %s: %w\n%s", name, strings.Join(args, " "), err, tail(said, 4000))
	}
	return stdout.Bytes(), nil
}

func tail(s string, n int) string {
	return s[max(0, len(s)-n):]
}

// install installs the Debian packages that are not installed yet.
func (b *Builder) install(ctx context.Context, packages []string) error {
	b.apt.Lock()
	defer b.apt.Unlock()
	slices.Sort(packages)
	var missing []string
	for _, p := range slices.Compact(packages) {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", p).Output()
		if err != nil || string(out) != "installed" {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	b.logf("installing Debian packages %s", strings.Join(missing, " "))
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	if _, err := b.run(ctx, "/", env, "apt-get", "update", "-q"); err != nil {
		return err
	}
	args := append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing...)
	_, err := b.run(ctx, "/", env, "apt-get", args...)
	return err
}
