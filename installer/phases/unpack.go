package phases

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"airlift/bundle"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/internal/fault"
)

// Content installs the contents of the bundle on this host: binaries and
// images.
type Content struct {
	*node.Machine
	Node   *Node
	Stream *payload.BundleStream // nil until something is unpacked
	stop   context.CancelFunc
}

// NewContent returns the Content of a run that has unpacked nothing yet.
func NewContent(n *Node) *Content { return &Content{Machine: n.Machine, Node: n} }

// Desired returns the binaries and images that this node gets from the bundle.
func (c *Content) Desired(ctx context.Context) (desired.List, error) {
	if err := c.Node.Inspect(ctx); err != nil {
		return desired.List{}, err
	}
	l := c.Node.content()
	l.SiteFiles = nil // the step files has them
	return l, nil
}

// Unpack starts the bundle stream. Binaries and images arrive in the background, in the order in
// which the host needs them. Steps wait for the entries that they need. The caller has called
// Ready.
func (c *Content) Unpack(ctx context.Context, l desired.List) error {
	if err := c.Node.Plan.Bundle.NeedsSource(); err != nil {
		return err
	}
	needed := []string{"bin/runc", "bin/containerd", "bin/containerd-shim-runc-v2"}
	if c.Node.Observed.KeepsRuntime {
		needed = nil
	} else if err := c.Host.Records().SetOwnsRuntime(); err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, b := range l.Binaries {
		wanted[b.Path] = true
	}
	wants := func(entry string) bool { return wanted[node.BinaryPath(entry)] }
	if c.Node.Plan.OnePhase {
		c.start(ctx, wants, nil, payload.SiteRequest{})
		if err := c.Stream.Finish(ctx); err != nil {
			return err
		}
	} else {
		c.start(ctx, wants, l.Images, c.siteRequest())
		if err := c.Stream.Wait(ctx, needed...); err != nil {
			return err
		}
	}
	return c.Host.InstallCommand(ctx, c.Node.Command().SHA256)
}

// start starts the bundle stream in the background.
func (c *Content) start(ctx context.Context, wantsBinary func(string) bool, images []bundle.Image, site payload.SiteRequest) {
	ctx, c.stop = context.WithCancel(ctx)
	b := c.Node.Plan.Bundle
	c.Stream = payload.NewBundleStream(b.File, b.Manifest, c.Host, wantsBinary, payload.ImageRequest{
		Wanted:  images,
		Aliases: c.Node.Plan.Aliases(c.Node.Config),
		Never:   c.Node.Config.NodeRegistration.ImagePullPolicy == corev1.PullNever,
	}, site)
	c.Stream.Start(ctx, b.Manifest)
}

// runtimeStarted passes the stream the containerd into which it imports the
// images.
func (c *Content) runtimeStarted() {
	if c.Stream != nil {
		c.Stream.Images.Runtime <- c.Node.Watch.Containerd
	}
}

// waitBinaries waits for binaries of the bundle. If no stream runs, they must
// already be installed.
func (c *Content) waitBinaries(ctx context.Context, entries ...string) error {
	if c.Stream != nil {
		return c.Stream.Wait(ctx, entries...)
	}
	for _, e := range entries {
		if dest := node.BinaryPath(e); !c.Exists(dest) {
			return fault.New(fault.Preflight, "%s is not installed", dest).Hint("run './install init phase unpack' first")
		}
	}
	return nil
}

// finish waits until everything is unpacked, and counts the changes, once.
func (c *Content) finish(ctx context.Context) error {
	if c.Stream == nil {
		return nil
	}
	stop := c.Console.Bytes("unpacking", &c.Stream.Moved, &c.Stream.Total)
	err := c.Stream.Finish(ctx)
	stop()
	c.useFiles(ctx)
	if err != nil {
		return err
	}
	c.Changes += int(c.Stream.Changed.Swap(0))
	return nil
}

// Close stops the stream and waits until it has ended.
func (c *Content) Close() {
	if c.stop != nil {
		c.stop()
		<-c.Stream.Done
	}
}
