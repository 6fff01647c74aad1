// Live runs what takes hours or needs the internet, and writes a page of docs with the results:
//
//	go run ./scripts/live versions|hosts|conformance|images-found [FLAGS]
//
// A run can be stopped and continued: what passed is not run again.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"airlift/internal/fault"
	"airlift/scripts/live/conformance"
	"airlift/scripts/live/imagesfound"
)

// A kind of run adds its flags, and returns what runs it.
type kind struct {
	name   string
	define func(*flag.FlagSet) func(context.Context) error
}

var kinds = []kind{
	{"versions", versions},               // docs/versions.md
	{"hosts", hosts},                     // docs/hosts.md
	{"conformance", conformance.Define},  // docs/conformance.md
	{"images-found", imagesfound.Define}, // docs/images-found.md
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	if err != nil && ctx.Err() != nil {
		err = fault.Wrap(err, fault.Interrupted, "run the same command again to continue")
	}
	stop()
	fault.Print(os.Stderr, err)
	os.Exit(int(fault.ExitCode(err)))
}

func run(ctx context.Context, args []string) error {
	i := slices.IndexFunc(kinds, func(k kind) bool { return len(args) > 0 && k.name == args[0] })
	if i < 0 {
		var names []string
		for _, k := range kinds {
			names = append(names, k.name)
		}
		return fault.New(fault.Usage, "name what to run").Hint("one of: " + strings.Join(names, ", "))
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	do := kinds[i].define(flags)
	_ = flags.Parse(args[1:]) // an error ends this process
	return do(ctx)
}
