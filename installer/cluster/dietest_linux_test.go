package cluster

import (
	"os/exec"
	"syscall"
)

// dieWithTest makes the kernel kill cmd when the test binary ends, for whatever
// reason.
func dieWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
