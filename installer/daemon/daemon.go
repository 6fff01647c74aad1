// Package daemon has what the processes of install that keep running share. They report to systemd, give back memory, and
// answer requests of their host at a Unix socket.
package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

const (
	aliveInterval = 3 * time.Second // a third of the shortest WatchdogSec in a unit
	// firstRelease is when the start is over. releaseInterval is how often a process gives back the pages of rare work, as
	// a renewed connection.
	firstRelease, releaseInterval = 5 * time.Second, time.Minute
)

// KeepAlive tells systemd that the process is ready, and then that it does not stand still, until ctx ends. Both do nothing
// without systemd.
func KeepAlive(ctx context.Context) error {
	if _, err := sd.SdNotify(false, sd.SdNotifyReady); err != nil {
		return err
	}
	alive, release := time.NewTicker(aliveInterval), time.NewTimer(firstRelease)
	defer alive.Stop()
	defer release.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-alive.C:
			if _, err := sd.SdNotify(false, sd.SdNotifyWatchdog); err != nil {
				return err
			}
		case <-release.C:
			if err := Release(); err != nil {
				return err
			}
			release.Reset(releaseInterval)
		}
	}
}

// Release gives back memory that is not used now. KeepAlive calls it, too.
func Release() error {
	debug.FreeOSMemory()
	if err := releaseCode(); err != nil {
		return fmt.Errorf("releasing memory: %w", err)
	}
	return nil
}

// Log returns a log for the journal, which adds the time itself.
func Log(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
