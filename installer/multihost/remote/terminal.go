package remote

import (
	"bufio"
	"fmt"
	"strings"
)

// A sudo with requiretty runs only in a session with a terminal, but a terminal changes bytes and has no end of its
// input. So a command has two sessions then: sudo is in one with a terminal, and the command's streams are in another
// one without, joined by three named pipes in a directory of the user.

// relayScript returns the script of the session without a terminal. It prints the directory, and moves what comes.
func relayScript(public, script string) string {
	return fmt.Sprintf(`umask 077; dir=$(mktemp -d) && cd "$dir" && mkfifo in out err || exit
printf %%s %s >script
printf '%%s\n' "%s%c$dir"
cat out & cat err >&2 & cat >in
wait; cd /; rm -rf "$dir"`, quote(script), public, markRelay)
}

// joinRelay precedes the script of a job. Without the file, sudo has started the command.
const joinRelay = "exec <in >out 2>err; rm -f script\n"

// startTerminal runs the script in the directory in a session with a terminal. If sudo did not start the command, also because
// that session ended, the relay still waits for the other ends of its pipes.
func (x *execution) startTerminal(dir string) error {
	if strings.ContainsAny(dir, `'\!`) {
		return fmt.Errorf("the directory for temporary files has special characters: %q", dir)
	}
	s, err := x.conn.transport.open(x.ctx, fmt.Sprintf("exec /bin/sh -c 'trap : HUP; stty raw -echo; cd %s && /bin/sh ./script; trap \"\" HUP; [ ! -f script ] || : <in >out 2>err'", dir), true)
	if err != nil {
		return err
	}
	go func() {
		<-x.ended
		s.close()
	}()
	go func() {
		_ = x.answer(bufio.NewReader(s.stdout), s.stdin, &x.outside[2])
		s.close()
		_ = x.stdin.Close()
	}()
	return nil
}
