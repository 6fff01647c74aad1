package output

import (
	"bufio"
	"context"
	"io"
	"strings"
)

// ReadLine reads a line, without its end. It returns early if ctx ends.
func ReadLine(ctx context.Context, r io.Reader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	given := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		given <- answer{strings.TrimRight(line, "\r\n"), err}
	}()
	select {
	case a := <-given:
		return a.line, a.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
