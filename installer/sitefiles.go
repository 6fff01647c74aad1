package installer

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/installer/host"
	"airlift/installer/render"
)

// siteFiles is the steps files and units: the site's own files and systemd units on this node.
type siteFiles struct {
	*content
}

// siteRequest returns what a run needs of the site's content.
func (c *content) siteRequest() siteRequest {
	r := siteRequest{}
	if !c.plan.skips("files") {
		r.files = c.plan.siteFiles()
	}
	if c.plan.role.manifests && !c.plan.skips("manifests") {
		for _, m := range c.plan.siteManifests() {
			r.manifests = append(r.manifests, m.Entry())
		}
	}
	return r
}

// write waits for the files that precede the images in the bundle: configuration, which
// containerd may need. Larger files arrive later; startUnits waits for them.
func (s siteFiles) write(ctx context.Context) error {
	if s.plan.onePhase {
		if err := s.ready(ctx); err != nil {
			return err
		}
		return s.writeAll(ctx)
	}
	return s.arrived(ctx, s.plan.early(s.plan.siteFiles()))
}

// writeAll reads the files from the bundle and writes them.
func (s siteFiles) writeAll(ctx context.Context) error {
	s.start(ctx, func(string) bool { return false }, nil, siteRequest{files: s.plan.siteFiles()})
	return s.finish(ctx)
}

// arrived waits for entries with files.
func (s siteFiles) arrived(ctx context.Context, entries []string) error {
	err := s.stream.wait(ctx, entries...)
	s.useFiles(ctx)
	return err
}

// useFiles makes the kernel use the files that were written since the last call. It prints
// what they replaced.
func (c *content) useFiles(ctx context.Context) {
	written, warnings := c.stream.site.news()
	for _, w := range warnings {
		c.console.Warn("%s", w)
	}
	for _, p := range written {
		c.console.Debug(1, "wrote %s", p)
	}
	for _, service := range []struct{ dir, unit string }{
		{"/etc/modules-load.d", "systemd-modules-load.service"},
		{"/etc/sysctl.d", "systemd-sysctl.service"},
	} {
		if !slices.ContainsFunc(written, func(p string) bool { return path.Dir(p) == service.dir }) {
			continue
		}
		if err := c.host.Reapply(ctx, service.unit); err != nil {
			c.console.Warn("the files in %s take effect at the next boot: %v", service.dir, err)
		}
	}
}

// startUnits waits for the rest of the files, enables the units, and starts those that do not
// run. It restarts a unit if its file changed, or a file of the site that its file names.
func (s siteFiles) startUnits(ctx context.Context) error {
	if s.stream != nil && !s.plan.skips("files") {
		if err := s.arrived(ctx, sortedEntries(s.plan.siteFiles())); err != nil {
			return err
		}
	}
	var started []string
	for _, unit := range s.plan.siteUnits() {
		files, err := s.filesOf(unit)
		if err != nil {
			return err
		}
		changed, err := s.host.EnsureUnit(ctx, unit, files...)
		if err != nil {
			return err
		}
		if changed {
			s.console.Debug(1, "started %s", unit)
			started = append(started, unit)
		}
	}
	s.changes += len(started)
	return s.host.WaitSteady(ctx, started...)
}

// filesOf returns a unit's file, its drop-ins, and the site's files that these name.
func (s siteFiles) filesOf(unit string) ([]string, error) {
	name := "/etc/systemd/system/" + unit
	files, text := []string{}, ""
	for _, p := range s.plan.sitePaths() {
		if p != name && path.Dir(p) != name+".d" {
			continue
		}
		data, err := os.ReadFile(s.host.Path(p))
		if err != nil {
			return nil, fault.Wrap(err, fault.Preflight, "write the site's files first, on the first control plane: ./install init phase files; on other nodes: ./install join phase files")
		}
		files, text = append(files, p), text+string(data)
	}
	for _, p := range s.plan.sitePaths() {
		if !slices.Contains(files, p) && strings.Contains(text, p) && s.exists(p) {
			files = append(files, p)
		}
	}
	return files, nil
}

// runtimeStale reports whether containerd runs since a time before one of the site's files
// that its configuration imports.
func (r runtimeStep) runtimeStale(ctx context.Context) (bool, error) {
	var imported []string
	for _, p := range r.plan.sitePaths() {
		if ok, _ := path.Match(render.ContainerdImports, p); ok && r.exists(p) {
			imported = append(imported, p)
		}
	}
	return r.host.StartedBefore(ctx, "containerd.service", imported...)
}

// hostFiles returns the site's files that a run writes on this node.
func (n *node) hostFiles() (list []host.SiteFile) {
	if n.plan.skips("files") {
		return nil
	}
	files := n.plan.siteFiles()
	for _, entry := range sortedEntries(files) {
		list = append(list, files[entry]...)
	}
	return list
}
