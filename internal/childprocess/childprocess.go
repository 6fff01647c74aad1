// Package childprocess starts other commands. They get only the environment variables that commands
// need in general: a secret in a variable, such as a password or a proxy with one, is for the
// process that the user started.
package childprocess

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// inherited are the variables of every command: where things are, and the language.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH",
	"TERM", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME",
	"SYSTEMROOT", "USERPROFILE", "PATHEXT", "COMSPEC", "TEMP", "TMP", // Windows
}

// Command is exec.CommandContext, with the variables that commands need in general.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = []string{} // nil would mean all
	Inherit(c, inherited...)
	return c
}

// Inherit adds variables of this process to the environment of the command.
func Inherit(c *exec.Cmd, names ...string) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name)
		}
		if slices.Contains(names, name) {
			c.Env = append(c.Env, v)
		}
	}
}
