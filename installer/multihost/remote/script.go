package remote

import (
	"fmt"
	"strings"
)

// bootstrap is the command that the login shell gets: it works in sh, bash, zsh, csh and fish, none of which changes what
// is in the quotes. sh reads the length of a script from its input, and then the script.
const bootstrap = `exec /bin/sh -c 'read -r n; eval "$(dd bs=1 count=$n 2>/dev/null)"'`

// A script has two markers, which are random. The public one separates the command's output from the output of profiles and of sudo.
// It is in the arguments of sudo, where all processes of the host can read it. The secret one is at the end of the command, whose
// output may have texts of others: so no argument has it, and the script reads it from its input.

// Letters after the markers of a script: the public one before the end, and the secret one at the end.
const (
	markPassword = 'P' // sudo asks for a password, on the standard error
	markBegin    = 'B' // the command begins, on both outputs
	markRelay    = 'R' // the name of a directory and a newline follow, see relayScript
	markEnd      = 'E' // the command has ended, on both outputs; with the exit code and a newline on the standard output
)

// quote returns a word for a POSIX shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}

// framed returns a script that runs a command with between two markers. Its input are the first bytes of the script's,
// and the script reads on: the end of its input before the end of the command is a driver that is gone.
//
// The watcher is in the process group of the command and of sudo, and signals all of it. In the shells the signal
// interrupts nothing, so that the exit code arrives; a command has the default action again. SIGTERM is for what ignores
// SIGINT, such as the background of a shell.
func framed(public, command string, input int64) string {
	return fmt.Sprintf(`%[1]s
trap : INT TERM
{ head -c %[3]d; exec >/dev/null 2>&1
  read -r line || { trap '' INT; kill -s INT 0; sleep %[4]d; trap '' TERM; kill -s TERM 0; }
} | { trap : INT TERM
  %[2]s
  %[5]s; }`, begin(public), command, input, int(patience.Seconds()), end)
}

// streamed returns a script that runs a command with the whole input.
func streamed(public, command string) string { return begin(public) + "\n" + command + "\n" + end }

// begin reads the secret marker after it has printed the public one: before, sudo reads the same input. The variable is not
// exported, also if the user's environment has one with its name.
func begin(public string) string {
	return fmt.Sprintf(`LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export LC_ALL PATH; cd /; unset airlift_marker
printf %%s %[1]s%[2]c; printf %%s %[1]s%[2]c >&2; read -r airlift_marker || exit`, public, markBegin)
}

// end prints with the shell's own printf, whose arguments no other process sees.
var end = fmt.Sprintf(`code=$?; printf %%s "${airlift_marker}%[1]c" >&2; printf '%%s\n' "${airlift_marker}%[1]c$code"`, markEnd)
