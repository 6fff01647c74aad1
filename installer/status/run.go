package status

import (
	"context"
	"fmt"

	"airlift/installer/host/ledger"
)

// A Run is the last command that changed this host.
type Run = ledger.Run

func (r *Reader) readRun(context.Context) (found result, err error) {
	if r.Ledger != nil {
		return found, r.Ledger
	}
	list, err := r.Host.Records().Runs()
	if err != nil || len(list) == 0 {
		return found, err
	}
	last := list[len(list)-1]
	found.set = func(s *Status) { s.LastRun = &last }
	again := fmt.Sprintf("run the same command again: ./install %s …", last.Command)
	switch {
	case !last.Ended():
		found.warn(again, "the last command, %s, has not ended: it runs now, or was killed", last.Command)
	case *last.ExitCode != 0:
		found.warn(again, "the last command, %s, failed: %s", last.Command, last.Error)
	}
	return found, nil
}
