package phases

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// SiteFiles is the steps files and units: the site's own files and systemd units on this node.
type SiteFiles struct {
	*node.Machine
	node    *Node
	content *Content
}

// NewSiteFiles returns the SiteFiles of a run.
func NewSiteFiles(c *Content) SiteFiles { return SiteFiles{c.Machine, c.Node, c} }

// siteRequest returns what a run needs of the site's content.
func (c *Content) siteRequest() payload.SiteRequest {
	r := payload.SiteRequest{}
	if !c.Node.Plan.Skips("files") {
		r.Files = c.Node.Plan.SiteFiles()
	}
	if c.Node.Plan.Role.manifests && !c.Node.Plan.Skips("manifests") {
		for _, m := range c.Node.Plan.SiteManifests() {
			r.Manifests = append(r.Manifests, m.Entry())
		}
	}
	return r
}

// Desired returns the site's files for this node, also if the phase runs alone and a file of kubeadm's skips it.
func (s SiteFiles) Desired(context.Context) (desired.List, error) {
	return desired.List{SiteFiles: s.node.Plan.hostFiles()}, nil
}

// WriteEarly waits for the files that precede the images in the bundle: configuration, which
// containerd may need. Larger files arrive later; StartUnits waits for them.
func (s SiteFiles) WriteEarly(ctx context.Context, _ desired.List) error {
	if s.node.Plan.OnePhase {
		if err := s.node.Ready(ctx); err != nil {
			return err
		}
		return s.WriteAll(ctx)
	}
	return s.arrived(ctx, s.node.Plan.early(s.node.Plan.SiteFiles()))
}

// WriteAll reads the files from the bundle and writes them.
func (s SiteFiles) WriteAll(ctx context.Context) error {
	s.content.start(ctx, func(string) bool { return false }, nil, payload.SiteRequest{Files: s.node.Plan.SiteFiles()})
	return s.content.finish(ctx)
}

// arrived waits for entries with files.
func (s SiteFiles) arrived(ctx context.Context, entries []string) error {
	err := s.content.Stream.Wait(ctx, entries...)
	s.content.useFiles(ctx)
	return err
}

// useFiles makes the kernel use the files that were written since the last call. It prints
// what they replaced.
func (c *Content) useFiles(ctx context.Context) {
	written, warnings := c.Stream.Site.News()
	for _, w := range warnings {
		c.Console.Warn("%s", w)
	}
	for _, p := range written {
		c.Console.Debug(1, "wrote %s", p)
	}
	for _, service := range []struct{ dir, unit string }{
		{"/etc/modules-load.d", "systemd-modules-load.service"},
		{"/etc/sysctl.d", "systemd-sysctl.service"},
	} {
		if !slices.ContainsFunc(written, func(p string) bool { return path.Dir(p) == service.dir }) {
			continue
		}
		if err := c.Host.Systemd().Reapply(ctx, service.unit); err != nil {
			c.Console.Warn("the files in %s take effect at the next boot: %v", service.dir, err)
		}
	}
}

// StartUnits waits for the rest of the files, enables the units, and starts those that do not
// run. It restarts a unit if its file changed, or a file of the site that its file names.
func (s SiteFiles) StartUnits(ctx context.Context) error {
	if s.content.Stream != nil && !s.node.Plan.Skips("files") {
		if err := s.arrived(ctx, payload.SortedEntries(s.node.Plan.SiteFiles())); err != nil {
			return err
		}
	}
	var started []string
	for _, unit := range s.node.Plan.SiteUnits() {
		files, err := s.filesOf(unit)
		if err != nil {
			return err
		}
		changed, err := s.Host.Systemd().EnsureUnit(ctx, unit, files...)
		if err != nil {
			return err
		}
		if changed {
			s.Console.Debug(1, "started %s", unit)
			started = append(started, unit)
		}
	}
	s.Changes += len(started)
	return s.Host.Systemd().WaitSteady(ctx, started...)
}

// filesOf returns a unit's file, its drop-ins, and the site's files that these name.
func (s SiteFiles) filesOf(unit string) ([]string, error) {
	name := "/etc/systemd/system/" + unit
	files, text := []string{}, ""
	for _, p := range s.node.Plan.sitePaths() {
		if p != name && path.Dir(p) != name+".d" {
			continue
		}
		data, err := os.ReadFile(s.Host.Path(p))
		if err != nil {
			return nil, fault.Wrap(err, fault.Preflight, "write the site's files first, on the first control plane: ./install init phase files; on other nodes: ./install join phase files")
		}
		files, text = append(files, p), text+string(data)
	}
	for _, p := range s.node.Plan.sitePaths() {
		if !slices.Contains(files, p) && strings.Contains(text, p) && s.Exists(p) {
			files = append(files, p)
		}
	}
	return files, nil
}

// runtimeStale reports whether containerd was started before one of the site's files that its
// configuration imports was written.
func (r RuntimeStep) runtimeStale(ctx context.Context) (bool, error) {
	var imported []string
	for _, p := range r.node.Plan.sitePaths() {
		if ok, _ := path.Match(render.ContainerdImports, p); ok && r.Exists(p) {
			imported = append(imported, p)
		}
	}
	return r.Host.Systemd().StartedBefore(ctx, "containerd.service", imported...)
}

// hostFiles returns the site's files that a run writes on this node.
func (n *Node) hostFiles() []host.SiteFile {
	if n.Plan.Skips("files") {
		return nil
	}
	return n.Plan.hostFiles()
}

// hostFiles returns the site's files for this node, in the order of the bundle's entries.
func (p *Plan) hostFiles() (list []host.SiteFile) {
	files := p.SiteFiles()
	for _, entry := range payload.SortedEntries(files) {
		list = append(list, files[entry]...)
	}
	return list
}
