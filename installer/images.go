package installer

import (
	"context"
	"slices"
	"time"

	"airlift/fault"
	"airlift/images"
	"airlift/images/store"
	"airlift/installer/config"
)

// imageTimeout limits the wait for the images. A USB 2 drive reads a bundle in a
// few seconds. A slow disk writes 0.5 to 1 GB of images in a few minutes.
const imageTimeout = 30 * time.Minute

// waitImages waits for images by component, with a progress bar on a terminal.
func (c *content) waitImages(ctx context.Context, components ...string) error {
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	if c.stream == nil {
		if err := c.importImages(ctx); err != nil {
			return err
		}
	}
	stop := c.console.Bytes("unpacking", &c.stream.moved, &c.stream.total)
	defer stop()
	if err := c.stream.wait(ctx, c.plan.bundle.references(components...)...); err != nil {
		return err
	}
	if c.plan.onePhase {
		if err := c.stream.finish(ctx); err != nil {
			return err
		}
	}
	return c.nameSandboxImage(ctx)
}

// importImages starts the import of the images into the running container
// runtime. It is for the phase images when it runs alone.
func (c *content) importImages(ctx context.Context) error {
	if err := c.inspect(ctx); err != nil {
		return err
	}
	if c.runtimeErr != nil {
		return c.runtimeErr
	}
	if c.containerd == nil {
		var err error
		if c.containerd, err = store.Connect(ctx, config.ContainerdSocket); err != nil {
			return fault.Wrap(err, fault.Failure, "run './install init phase runtime' first")
		}
	}
	c.start(ctx, func(string) bool { return false }, c.plan.images(), siteRequest{})
	c.runtimeStarted()
	return nil
}

// nameSandboxImage tags the bundle's pause image with the name that an existing
// containerd uses for its pause image. That containerd cannot pull it here.
func (c *content) nameSandboxImage(ctx context.Context) error {
	if c.runtime == nil {
		return nil
	}
	for _, name := range c.sandboxNames() {
		if err := c.containerd.Tag(ctx, c.config.Images["pause"], name); err != nil {
			return err
		}
	}
	return nil
}

// sandboxNames returns the names of the runtime's pause image that no image on this node gets from the
// bundle, also if they are written in another form.
func (c *content) sandboxNames() []string {
	taken := map[string]bool{}
	for _, i := range c.plan.images() {
		taken[i.Reference], taken[images.Repository(i.Reference)+"@"+i.Target.Digest] = true, true
	}
	for _, name := range c.config.Images {
		taken[normalized(name)] = true
	}
	return slices.DeleteFunc(slices.Clone(c.runtime.sandboxImages()), func(name string) bool { return taken[normalized(name)] })
}

// normalized returns the full form of an image's name, or name if it is none.
func normalized(name string) string {
	full, err := images.Normalize(name)
	if err != nil {
		return name
	}
	return full
}
