package interrupt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// ReadPassword asks on out for a secret, and reads it from a terminal without showing it. After an
// interruption, the terminal shows again what is typed. It returns ok false if tty is no terminal.
func ReadPassword(ctx context.Context, tty *os.File, out io.Writer, prompt string) (secret string, ok bool, err error) {
	fd := int(tty.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", false, nil //nolint:nilerr // not a terminal
	}
	fmt.Fprint(out, prompt)
	defer fmt.Fprintln(out)
	type answer struct {
		secret []byte
		err    error
	}
	given := make(chan answer, 1)
	go func() {
		secret, err := term.ReadPassword(fd)
		given <- answer{secret, err}
	}()
	select {
	case a := <-given:
		return string(a.secret), true, a.err
	case <-ctx.Done():
		return "", true, errors.Join(context.Cause(ctx), term.Restore(fd, before))
	}
}
