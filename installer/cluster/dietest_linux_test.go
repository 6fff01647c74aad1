package cluster

import (
	"os/exec"
	"syscall"
)

// dieWithTest makes the kernel end cmd with the test binary, however that ends.
func dieWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
