package backup

import (
	"context"
	"io"
)

// Until returns a writer that returns the context's error after ctx was cancelled.
func Until(ctx context.Context, w io.Writer) io.Writer { return cancelled{ctx, w} }

type cancelled struct {
	ctx context.Context
	w   io.Writer
}

func (c cancelled) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}
