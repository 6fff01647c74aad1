// Bench installs clusters with Airlift and with kubeadm by hand, alternating, on fresh lab
// hosts with the same components, and prints medians and ratios. It is not a test: it
// never fails on time, only on errors.
//
// "bench scale" prints how Airlift's cost grows with the size of the bundle, with the
// images on the host and with the number of hosts. "bench repeat" installs the same cluster
// again and again, and prints how the times vary.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"airlift/internal/fault"
)

const usage = `usage: bench [flags]          compare Airlift with kubeadm by hand
       bench scale [flags]    measure how Airlift's cost grows
       bench repeat [flags]   measure how the times of init and join vary

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	if err != nil && ctx.Err() != nil {
		err = fault.Wrap(err, fault.Interrupted, "the lab was removed")
	}
	stop()
	fault.Print(os.Stderr, err)
	os.Exit(int(fault.ExitCode(err)))
}

// options are the flags of all commands.
type options struct {
	bundle, tool, rig string // the bundle file, and the binaries bundle and upstream
	best              string // a second bundle file
	newer             string // a bundle file of a newer version
	runs              int
	only              string
	json              string
	load              int    // processes that keep processors busy
	keep              string // a directory for logs
	profile           string // of init
	slow              time.Duration
}

func command(ctx context.Context, args []string) error {
	var o options
	parts, act, compares := benchParts, bench, true
	switch {
	case len(args) > 0 && args[0] == "scale":
		args, parts, act, compares = args[1:], scaleParts, scale, false
	case len(args) > 0 && args[0] == "repeat":
		args, parts, act, compares = args[1:], nil, repeat, false
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.bundle, "bundle", "out/install", "the bundle `file`")
	f.StringVar(&o.best, "best", "", "a `file` with the same contents, built with --compression best")
	f.StringVar(&o.newer, "newer", "", "a bundle `file` of a newer version, for the delta between both and for upgrades")
	f.StringVar(&o.tool, "tool", "bin/bundle", "the `binary` that builds bundles")
	f.StringVar(&o.rig, "upstream", "bin/upstream", "the `binary` that serves the upstream components")
	f.IntVar(&o.runs, "runs", 3, "the `number` of measurements of each")
	f.IntVar(&o.load, "load", 0, "repeat: the number of `processes` that keep the processors busy")
	f.DurationVar(&o.slow, "slow", 25*time.Second, "repeat: a run is slow if its last pod is Ready later than this `duration` after join returned")
	f.StringVar(&o.keep, "keep", "", "repeat: a `directory` for the logs of slow runs")
	f.StringVar(&o.only, "only", "", "only these `parts`, separated by commas: "+strings.Join(parts, ", "))
	f.StringVar(&o.profile, "profile", "", "compare clusters without and with this `profile` of init, instead of Airlift with kubeadm: nodes, idle")
	f.StringVar(&o.json, "json", "", "also write every measurement to this `file`")
	if err := f.Parse(args); err == flag.ErrHelp {
		return nil
	} else if err != nil {
		return fault.Wrap(err, fault.Usage, "")
	}
	if o.profile != "" {
		if !compares {
			return fault.New(fault.Usage, "--profile is for bench itself").Hint("see bench --help")
		}
		parts = []string{"nodes", "idle"}
	}
	chosen := parts
	if o.only != "" {
		chosen = strings.Split(o.only, ",")
	}
	for _, p := range chosen {
		if !slices.Contains(parts, p) {
			return fault.New(fault.Usage, "unknown part %q", p).Hint("parts: " + strings.Join(parts, ", "))
		}
	}
	if f.NArg() > 0 || o.runs < 1 {
		return fault.New(fault.Usage, "unexpected arguments %q", f.Args()).Hint("see bench --help")
	}
	return act(ctx, o, func(part string) bool { return slices.Contains(chosen, part) })
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
