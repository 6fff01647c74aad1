package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"airlift/internal/fault"
)

// tools maps the commands that the lab uses to their Debian packages.
var tools = [][2]string{
	{"debootstrap", "debootstrap"},
	{"ip", "iproute2"},
	{"mkfs.btrfs", "btrfs-progs"},
	{"mkfs.ext4", "e2fsprogs"},
	{"mkfs.xfs", "xfsprogs"},
	{"mount", "mount"},
	{"nft", "nftables"},
	{"nsenter", "util-linux"},
	{"unshare", "util-linux"},
	{"systemd-nspawn", "systemd-container"},
	{"tar", "tar"},
	{"zstd", "zstd"},
}

// toolsLockFile is locked while the tools are installed.
const toolsLockFile = "/run/lock/airlift-lab-tools"

// missingTools returns the commands that this machine does not have, and their packages.
func missingTools() (commands, packages []string) {
	for _, t := range tools {
		if _, err := exec.LookPath(t[0]); err != nil {
			commands, packages = append(commands, t[0]), append(packages, t[1])
		}
	}
	return commands, packages
}

// ensureTools installs the packages of missing commands with apt-get. Labs that start at the
// same time install them once: a second apt-get would fail.
func ensureTools(ctx context.Context, log func(string, ...any)) error {
	if commands, _ := missingTools(); len(commands) == 0 {
		return nil
	}
	unlock, err := lock(ctx, toolsLockFile)
	if err != nil {
		return err
	}
	defer unlock()
	commands, packages := missingTools()
	if len(commands) == 0 {
		return nil
	}
	log("installing %s with apt-get", strings.Join(packages, ", "))
	// Another apt-get of this machine may be running.
	install := append([]string{"apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "--yes", "--no-install-recommends"}, packages...)
	for _, argv := range [][]string{{"apt-get", "update"}, install} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := runCommand(ctx, cmd); err != nil {
			return fault.Wrap(err, fault.Preflight, "install "+strings.Join(packages, " ")+" yourself")
		}
	}
	if commands, packages = missingTools(); len(commands) > 0 {
		return fault.New(fault.Preflight, "%s still missing after installing %s", strings.Join(commands, ", "), strings.Join(packages, ", ")).
			Hint("install them and check PATH")
	}
	return nil
}

// run runs a command on this machine; an error includes the end of its output.
func run(ctx context.Context, argv ...string) error {
	return runCommand(ctx, exec.CommandContext(ctx, argv[0], argv[1:]...))
}

// output is run for commands whose standard output is needed.
func output(ctx context.Context, argv ...string) (string, error) {
	var stdout bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout = &stdout
	err := runCommand(ctx, cmd)
	return stdout.String(), err
}

// runCommand runs a command that was created with the same ctx. The command ends with this
// process, even if this process is killed: it must not create what is being removed.
func runCommand(ctx context.Context, cmd *exec.Cmd) error {
	// The kernel sends the signal when the thread ends that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &said
	}
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err() // instead of "killed"
		}
		return fmt.Errorf("running %s: %w%s", strings.Join(cmd.Args, " "), err, lastLines(said.String(), 8))
	}
	return nil
}

// lastLines returns ": " and the last n lines of text, or "" if it is blank.
func lastLines(text string, n int) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	return ": " + strings.Join(lines[max(0, len(lines)-n):], "\n")
}
