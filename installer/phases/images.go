package phases

import (
	"context"
	"slices"

	"airlift/images/release"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/internal/fault"
)

// WaitImages waits for images by component, with a progress bar on a terminal.
func (c *Content) WaitImages(ctx context.Context, components ...string) error {
	ctx, cancel := context.WithTimeout(ctx, payload.ImageTimeout)
	defer cancel()
	if c.Stream == nil {
		if err := c.importImages(ctx); err != nil {
			return err
		}
	}
	stop := c.Console.Bytes("unpacking", &c.Stream.Moved, &c.Stream.Total)
	defer stop()
	if err := c.Stream.Wait(ctx, c.Node.Plan.Bundle.References(components...)...); err != nil {
		return err
	}
	if c.Node.Plan.OnePhase {
		if err := c.Stream.Finish(ctx); err != nil {
			return err
		}
	}
	return c.NameSandboxImage(ctx)
}

// importImages starts the import of the images into the running container
// runtime. It is for the phase images when it runs alone.
func (c *Content) importImages(ctx context.Context) error {
	if err := c.Node.Plan.Bundle.NeedsSource(); err != nil {
		return err
	}
	if err := c.Node.Inspect(ctx); err != nil {
		return err
	}
	if c.Node.Observed.RuntimeErr != nil {
		return c.Node.Observed.RuntimeErr
	}
	if c.Node.Watch.Containerd == nil {
		var err error
		if c.Node.Watch.Containerd, err = store.Connect(ctx, config.ContainerdSocket); err != nil {
			return fault.Wrap(err, fault.Failure, "run './install init phase runtime' first")
		}
	}
	c.start(ctx, func(string) bool { return false }, c.Node.Plan.Images(), payload.SiteRequest{})
	c.runtimeStarted()
	return nil
}

// NameSandboxImage tags the bundle's pause image with the name that an existing
// containerd uses for its pause image. That containerd cannot pull it here.
func (c *Content) NameSandboxImage(ctx context.Context) error {
	if c.Node.Observed.Runtime == nil {
		return nil
	}
	for _, name := range c.sandboxNames() {
		if err := c.Node.Watch.Containerd.Tag(ctx, c.Node.Config.Images["pause"], name); err != nil {
			return err
		}
	}
	return nil
}

// sandboxNames returns the names of the runtime's pause image that no image on this node gets from the
// bundle, also if they are written in another form.
func (c *Content) sandboxNames() []string {
	taken := map[string]bool{}
	for _, i := range c.Node.Plan.Images() {
		taken[i.Reference], taken[release.Repository(i.Reference)+"@"+i.Target.Digest] = true, true
	}
	for _, name := range c.Node.Config.Images {
		taken[payload.Normalized(name)] = true
	}
	return slices.DeleteFunc(slices.Clone(c.Node.Observed.Runtime.SandboxImages()), func(name string) bool { return taken[payload.Normalized(name)] })
}
