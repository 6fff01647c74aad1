package remote

import (
	"bufio"
	"context"
	"fmt"
	"io"
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

// joinRelay precedes the script of a job.
const joinRelay = "exec <in >out 2>err\n"

// startTerminal runs the script in the directory in a session with a terminal.
func (x *execution) startTerminal(dir string) error {
	if strings.ContainsAny(dir, `'\!`) {
		return fmt.Errorf("the directory for temporary files has special characters: %q", dir)
	}
	s, err := x.conn.transport.open(x.ctx, fmt.Sprintf("exec /bin/sh -c 'stty raw -echo; cd %s && exec /bin/sh ./script'", dir), true)
	if err != nil {
		return err
	}
	go func() {
		<-x.ended
		s.close()
	}()
	go func() {
		_ = x.answer(bufio.NewReader(s.stdout), s.stdin, &x.outside[2])
		select {
		case <-x.began:
		default:
			x.openPipes(dir)
		}
	}()
	return nil
}

// openPipes ends the relay of a sudo that did not start the command: it waits for the other ends of its pipes.
func (x *execution) openPipes(dir string) {
	s, err := x.conn.transport.open(context.WithoutCancel(x.ctx), "exec /bin/sh -c 'cd "+dir+" && : <>in <>out <>err'", false)
	if err != nil {
		x.close()
		return
	}
	_, _ = io.Copy(io.Discard, s.stdout)
	s.close()
	_ = x.stdin.Close()
}
