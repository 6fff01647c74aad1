package main

import (
	"context"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
)

// runFlags control how init, join and their phases use the bundle and the host.
type runFlags struct {
	command        string // for messages: "init"
	skipFileCheck  bool   // do not verify the digests of the bundle file
	rootfs         string // directory to use as the host's root
	onePhase       bool   // one phase runs alone
	changesNothing bool   // do not change the host
	anyBundle      bool   // also accept a host that was installed from another bundle
	registries     config.RegistryFlags
}

// opened has the data that init and join need.
type opened struct {
	plan    *phases.Plan
	bundle  *payload.Bundle
	host    *host.Host
	console *workflow.Console
	done    func() // the caller calls it at the end
}

// open opens the bundle and the host, and sets in cfg what they determine.
func (r runFlags) open(ctx context.Context, cfg *config.Config, console *workflow.Console, o detection.Options) (*opened, error) {
	ctx, span := timeline.Start(ctx, timeline.Steps, "start-up")
	defer span.End()
	registries, warnings, err := r.registries.Read()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		console.Warn("%s", w)
	}
	cfg.Registries = registries
	b, closeBundle, err := shared.Payload()
	if err != nil {
		return nil, err
	}
	if err := b.NeedsKubernetes(r.command); err != nil {
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
		closeBundle()
		return nil, err
	}
	done := func() {
		closeBundle()
		unlock()
	}
	o.CNI = cfg.CNI // the bundle's, unless the user gave one
	if cfg.Facts, err = r.inspect(ctx, b, h, o); err != nil {
		done()
		return nil, err
	}
	return &opened{bundle: b, host: h, console: console, done: done}, nil
}

// openHost opens the host, or the directory that --rootfs names.
func (r runFlags) openHost() (h *host.Host, unlock func(), err error) {
	unlock = func() {}
	switch {
	case r.rootfs != "":
		h, err = host.OpenDirectory(r.rootfs)
	case r.changesNothing:
		h, err = host.Open("/")
	default:
		return openUnfinished() // init, join and restore decide which interrupted run they continue
	}
	return h, unlock, err
}

// inspect refuses a host that was installed from another bundle, and returns
// the host's facts.
func (r runFlags) inspect(ctx context.Context, b *payload.Bundle, h *host.Host, o detection.Options) (config.Facts, error) {
	if !r.anyBundle {
		if err := b.CheckHost(ctx, h); err != nil {
			return config.Facts{}, err
		}
	}
	if r.rootfs != "" { // the directory has only files; take the other facts from this host
		var err error
		if h, err = host.Open("/"); err != nil {
			return config.Facts{}, err
		}
	}
	return detection.Detect(ctx, h.Root, o)
}

// openHost opens this host for changes and locks it against other processes. It refuses a host with an unfinished reset or restore.
func openHost() (h *host.Host, unlock func(), err error) {
	return node.OpenToChange("/")
}

// openUnfinished is openHost for commands that also work on a host with an unfinished reset or restore.
func openUnfinished() (h *host.Host, unlock func(), err error) {
	return host.OpenLocked("/")
}
