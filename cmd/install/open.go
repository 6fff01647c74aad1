package main

import (
	"context"
	"os"

	"airlift/fault"
	"airlift/installer"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/timeline"
)

// runFlags are how init and join, and their phases, use the bundle and the host.
type runFlags struct {
	skipFileCheck  bool   // do not compare the bundle file with its digests
	rootfs         string // a directory that stands for the host
	onePhase       bool   // one phase runs alone
	changesNothing bool   // the host is only looked at
	anyBundle      bool   // also on a host that was installed from another bundle
}

// opened is what init or join work on.
type opened struct {
	plan    *installer.Plan
	bundle  *installer.Bundle
	host    *host.Host
	console *installer.Console
	done    func() // to be called at the end
}

// open opens the bundle and the host, and sets in cfg what they decide.
func (r runFlags) open(ctx context.Context, cfg *config.Config, console *installer.Console, o host.Options) (*opened, error) {
	ctx, span := timeline.Start(ctx, timeline.Steps, "start-up")
	defer span.End()
	f, err := openBundle()
	if err != nil {
		return nil, err
	}
	b, err := installer.OpenBundle(f)
	if err != nil {
		return nil, err
	}
	if err := b.Configure(cfg); err != nil {
		return nil, err
	}
	if !r.skipFileCheck {
		b.CheckFile(ctx)
	}
	h, unlock, err := r.openHost()
	if err != nil {
		b.Close()
		return nil, err
	}
	done := func() {
		b.Close()
		unlock()
	}
	if cfg.Facts, err = r.inspect(ctx, b, h, o); err != nil {
		done()
		return nil, err
	}
	return &opened{bundle: b, host: h, console: console, done: done}, nil
}

// openHost opens the host, or the directory that stands for it.
func (r runFlags) openHost() (h *host.Host, unlock func(), err error) {
	unlock = func() {}
	switch {
	case r.rootfs != "":
		h, err = host.OpenFolder(r.rootfs)
	case r.changesNothing:
		h, err = host.Open("/")
	default:
		return openHost()
	}
	return h, unlock, err
}

// inspect refuses a host of another bundle and returns the host's facts.
func (r runFlags) inspect(ctx context.Context, b *installer.Bundle, h *host.Host, o host.Options) (config.Facts, error) {
	if !r.anyBundle {
		if err := b.CheckHost(ctx, h); err != nil {
			return config.Facts{}, err
		}
	}
	if r.rootfs != "" { // it has files only; the rest of the host is this one
		var err error
		if h, err = host.Open("/"); err != nil {
			return config.Facts{}, err
		}
	}
	return h.Detect(ctx, o)
}

// openHost opens this host for changes by this process alone, until unlock.
func openHost() (h *host.Host, unlock func(), err error) {
	if os.Geteuid() != 0 {
		return nil, nil, fault.New(fault.Preflight, "run it with sudo or as root", "[ERROR IsPrivilegedUser]: this needs root")
	}
	return host.OpenLocked("/")
}
