// Command crashat runs a command and kills it right before its Nth rename to a
// name that ends in SUFFIX:
//
//	crashat N SUFFIX COMMAND ARG...
//
// It exits with 9 if it killed the command, with 0 if the command succeeded before, and
// otherwise with 1.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"airlift/scripts/crash"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: crashat N SUFFIX COMMAND ARG...")
		os.Exit(2)
	}
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	cmd := exec.Command(os.Args[3], os.Args[4:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	killed, err := crash.Run(cmd, crash.Numbered(n, func(c crash.Call) bool {
		return c.Name == "rename" && strings.HasSuffix(c.Path, os.Args[2])
	}))
	switch {
	case killed:
		os.Exit(9)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
