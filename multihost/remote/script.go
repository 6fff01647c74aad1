package remote

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// bootstrap is the command that the login shell gets: it works in sh, bash, zsh, csh and fish, none of which changes what
// is in the quotes. sh reads the length of a script from its input, and then the script.
const bootstrap = `exec /bin/sh -c 'read -r n; eval "$(dd bs=1 count=$n 2>/dev/null)"'`

// Letters after the marker of a script.
const (
	markPassword = 'P' // sudo asks for a password, on the standard error
	markBegin    = 'B' // the command begins, on both outputs
	markRelay    = 'R' // the name of a directory and a newline follow, see relayScript
	markEnd      = 'E' // the command has ended, on both outputs; with the exit code and a newline on the standard output
)

// newMarker returns what separates the output of a command from the output of profiles and of sudo.
func newMarker() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

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
func framed(marker, command string, input int64) string {
	return fmt.Sprintf(`%[1]s
trap : INT TERM
{ head -c %[3]d; exec >/dev/null 2>&1
  read -r line || { trap '' INT; kill -s INT 0; sleep %[4]d; trap '' TERM; kill -s TERM 0; }
} | { trap : INT TERM
  %[2]s
  %[5]s; }`, begin(marker), command, input, int(patience.Seconds()), end(marker))
}

// streamed returns a script that runs a command with the whole input.
func streamed(marker, command string) string {
	return begin(marker) + "\n" + command + "\n" + end(marker)
}

func begin(marker string) string {
	return fmt.Sprintf(`LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export LC_ALL PATH; cd /
printf %%s %[1]s%[2]c; printf %%s %[1]s%[2]c >&2`, marker, markBegin)
}

func end(marker string) string {
	return fmt.Sprintf(`code=$?; printf %%s %[1]s%[2]c >&2; printf '%%s\n' "%[1]s%[2]c$code"`, marker, markEnd)
}
