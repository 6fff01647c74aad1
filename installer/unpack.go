package installer

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"airlift/bundle"
	"airlift/fault"
)

// content installs the contents of the bundle on this host: binaries and
// images.
type content struct {
	*node
	stream *bundleStream // nil until something is unpacked
	stop   context.CancelFunc
}

// unpack starts the bundle stream. Binaries and images arrive in the
// background, in the order in which the host needs them. Steps wait for those
// that they need. The caller has called ready.
func (c *content) unpack(ctx context.Context) error {
	needed := []string{"bin/runc", "bin/containerd", "bin/containerd-shim-runc-v2"}
	if c.keepsRuntime {
		needed = nil
	} else if err := c.host.SetOwnsRuntime(); err != nil {
		return err
	}
	if c.plan.onePhase {
		c.start(ctx, c.wantsBinary, nil, siteRequest{})
		return c.stream.finish(ctx)
	}
	c.start(ctx, c.wantsBinary, c.plan.images(), c.siteRequest())
	return c.stream.wait(ctx, needed...)
}

// start starts the bundle stream in the background.
func (c *content) start(ctx context.Context, wantsBinary func(string) bool, images []bundle.Image, site siteRequest) {
	ctx, c.stop = context.WithCancel(ctx)
	b := c.plan.bundle
	c.stream = newBundleStream(b.file, b.manifest, c.host, wantsBinary, imageRequest{
		wanted:  images,
		aliases: c.plan.aliases(c.config),
		never:   c.config.NodeRegistration.ImagePullPolicy == corev1.PullNever,
	}, site)
	c.stream.start(ctx, b.manifest)
}

// runtimeStarted passes the stream the containerd into which it imports the
// images.
func (c *content) runtimeStarted() {
	if c.stream != nil {
		c.stream.images.runtime <- c.containerd
	}
}

// waitBinaries waits for binaries of the bundle. If no stream runs, they must
// already be installed.
func (c *content) waitBinaries(ctx context.Context, entries ...string) error {
	if c.stream != nil {
		return c.stream.wait(ctx, entries...)
	}
	for _, e := range entries {
		if dest := binaryPath(e); !c.exists(dest) {
			return fault.New(fault.Preflight, "run './install init phase unpack' first", "%s is not installed", dest)
		}
	}
	return nil
}

// finish waits until everything is unpacked, and counts the changes, once.
func (c *content) finish(ctx context.Context) error {
	if c.stream == nil {
		return nil
	}
	stop := c.console.Bytes("unpacking", &c.stream.moved, &c.stream.total)
	err := c.stream.finish(ctx)
	stop()
	c.useFiles(ctx)
	if err != nil {
		return err
	}
	c.changes += int(c.stream.changed.Swap(0))
	return nil
}

// close stops the stream and waits until it has ended.
func (c *content) close() {
	if c.stop != nil {
		c.stop()
		<-c.stream.done
	}
}
