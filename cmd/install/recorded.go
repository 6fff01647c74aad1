package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"airlift/cmd/install/nodecmd"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/redact"
	"airlift/internal/fault"
)

// shared is what all commands share that change this host.
var shared = nodecmd.Environment{Bundle: openBundle, Host: openHost, Console: console, Recorded: recorded, Confirm: confirm}

// commandName returns a subcommand without the file name: "init phase certs".
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().CommandPath()+" ")
}

// recorded runs a command that changes this host, and records for 'install status' when it
// began, how long it took and how it ended. The host must be locked. Flags and arguments are
// not recorded, because they may be secrets.
func recorded(cmd *cobra.Command, h *host.Host, kubernetes string, run func() error) error {
	began := newRun(cmd, kubernetes)
	h.Records().BeginRun(began)
	err := run()
	endRun(cmd, h, err)
	return err
}

// recordedAfter records a command that locks this host itself, several times. It is recorded after it has ended.
func recordedAfter(cmd *cobra.Command, open func() (*host.Host, func(), error), run func() error) error {
	began := newRun(cmd, "")
	err := run()
	if h, unlock, oerr := open(); oerr == nil { // the record is only for people
		defer unlock()
		if h.Records().Used() {
			h.Records().BeginRun(began)
			endRun(cmd, h, err)
		}
	}
	return err
}

func newRun(cmd *cobra.Command, kubernetes string) ledger.Run {
	file, id := own.used()
	return ledger.Run{Command: commandName(cmd), Version: kubernetes, File: file, Bundle: id, Began: time.Now().UTC().Truncate(time.Millisecond)}
}

func endRun(cmd *cobra.Command, h *host.Host, err error) {
	code, message := fault.ExitCode(err), ""
	if err != nil {
		message, _, _ = strings.Cut(err.Error(), "\n")
		message = redact.Line(message)
		if cmd.Context().Err() != nil {
			code = fault.Interrupted
		}
	}
	h.Records().EndRun(time.Now(), int(code), message)
}
