package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// The error of an attempt that the deadline interrupted does not replace the earlier error.
func TestPollSaysWhatItSawBefore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	reason, tries := errors.New("no such file"), 0
	err := poll(ctx, time.Millisecond, func(ctx context.Context) error {
		if tries++; tries < 3 {
			return reason
		}
		deadline, _ := ctx.Deadline()
		time.Sleep(time.Until(deadline))
		return errors.New("i/o timeout")
	})
	if !errors.Is(err, reason) || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "i/o timeout") {
		t.Errorf("error is %v", err)
	}
	// Unless there was no earlier error.
	err = poll(ctx, time.Millisecond, func(context.Context) error { return reason })
	if !errors.Is(err, reason) {
		t.Errorf("error is %v", err)
	}
}
