package main

import (
	"context"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/flow/site"
	"airlift/installer/payload"
	"airlift/installer/timeline"
	"airlift/internal/fault"
)

type importFlags struct {
	base          string
	pin           bool
	allNodes      bool
	skipFileCheck bool
	formats       output.Flags
	timeline      timelineFlag
}

// imported is the document that import prints with --output.
type imported struct {
	Imported []string `json:"imported"`
}

func newImportCmd() *cobra.Command {
	in := &importFlags{}
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Import the site's own images in this file into this node",
		Long: `Import the site's own images in this file into the containerd of this node, for images
that a running cluster needs later. Run it on every node whose pods use them. It
checks everything as init does, and does not restart anything. It is safe to run it
again: it finishes what an earlier run left, and changes nothing else.

It imports the same images as init and join, except the images of Kubernetes.
They are pinned: the kubelet's garbage collection never removes them, because no node
could pull them again. With --pin=false, the kubelet removes images that no container
uses when the disk is almost full. Images that are pinned already stay pinned, because
init or another file may need that: "images unpin" unpins them.

On a control plane of a cluster with the embedded registry, one run is enough: the control
planes keep this file, and every node pulls from them. With --all-nodes, every node gets
the images before a pod needs them. A node that is not Ready gets them when it is back.

If this file was built with a base, it leaves out layers that the base has. They are
on every node that imported the images of the base. On any other node, use --base FILE:
import reads the missing layers from the base.` + timelineHelp,
		Example: "  ./more import\n  ./more import --base ./install\n  ./more import --pin=false\n  ./more import --all-nodes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := in.formats.Printer()
			if err != nil {
				return err
			}
			if show != nil && in.timeline.file == "-" {
				return fault.New(fault.Usage, "--timeline - and --output both write to standard output").Hint("choose a file for the timeline")
			}
			cfg := &config.Config{}
			return in.timeline.record(cmd, cfg, func(*timeline.Recorder) error { return in.run(cmd, cfg, show) })
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&in.base, "base", "", "the bundle `FILE` that was the base of this file, for layers that this node does not have")
	f.BoolVar(&in.pin, "pin", true, "protect the images from the kubelet's garbage collection; false does not unpin an image that is pinned already")
	f.BoolVar(&in.allNodes, "all-nodes", false, "with the embedded registry: also bring the images to the disk of every node, and wait for that")
	f.BoolVar(&in.skipFileCheck, "skip-file-check", false, "do not verify the files first; use it only after 'bundle verify' or sha256sum")
	in.formats.Bind(f)
	in.timeline.bind(f)
	return cmd
}

// run imports the images. It sets the Kubernetes version in cfg, for the timeline.
func (in *importFlags) run(cmd *cobra.Command, cfg *config.Config, show output.Printer) error {
	ctx, c := cmd.Context(), console(cmd)
	if show != nil {
		c.Out = cmd.ErrOrStderr()
	}
	f, err := openBundle()
	if err != nil {
		return err
	}
	b, done, err := in.open(ctx, f)
	if err != nil {
		return err
	}
	defer done()
	cfg.KubernetesVersion = b.KubernetesVersion()
	o := site.ImportOptions{Unpinned: !in.pin, AllNodes: in.allNodes}
	if in.base != "" {
		f, err := bundle.OpenWhole(in.base)
		if err != nil {
			return err
		}
		base, done, err := in.open(ctx, f)
		if err != nil {
			return err
		}
		defer done()
		if err := b.AcceptsBase(base); err != nil {
			return err
		}
		o.Base = base
	}
	h, unlock, err := openHost()
	if err != nil {
		return err
	}
	defer unlock()
	run := site.NewImport(b, o, h, c)
	defer run.Close()
	if err := recorded(cmd, h, b.KubernetesVersion(), func() error { return run.Run(ctx) }); err != nil || show == nil {
		return err
	}
	return show(cmd.OutOrStdout(), imported{run.Imported()})
}

// open reads the manifest of a bundle file, and starts to verify the file.
func (in *importFlags) open(ctx context.Context, f *bundle.File) (*payload.Bundle, func(), error) {
	b, err := payload.OpenBundle(f)
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	if !in.skipFileCheck {
		b.CheckFile(ctx)
	}
	return b, func() { b.Close(); _ = f.Close() }, nil
}
