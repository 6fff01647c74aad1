package preflight

import (
	"context"
	"path"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/render"
)

// siteFiles requires that the site's own files can be written, and do not replace what
// Airlift or a component writes. `bundle build` refuses such paths, too.
func (s *subject) siteFiles(context.Context) []finding {
	var found []finding
	for _, f := range s.Files {
		if s.owned(f.Path) {
			found = append(found, problem("build the bundle with another path", "the bundle's file %s: this path belongs to Kubernetes or to Airlift", f.Path)...)
			continue
		}
		if err := s.host.SiteFileFits(f); err != nil {
			found = append(found, problem(fault.Hint(err), "%v", err)...)
		}
	}
	return found
}

// owned reports whether Airlift or a component of the node writes to a path.
func (s *subject) owned(file string) bool {
	dirs := []string{host.StateDir, path.Dir(host.StubPath), config.KubernetesDir, config.KubeletDir, s.Config.CertificatesDir}
	for _, c := range host.Claims(s.Config, true, true) {
		dirs = append(dirs, c.Path)
	}
	files := []string{render.ContainerdConfigPath, render.CrictlConfigPath, render.CNIConflistPath, render.ContainerdUnitPath, render.KubeletUnitPath, render.KubeletDropInPath}
	for _, b := range s.Binaries {
		files = append(files, b.Path)
	}
	return slices.Contains(files, file) || slices.ContainsFunc(dirs, func(dir string) bool {
		return dir != "" && (file == dir || strings.HasPrefix(file, dir+"/"))
	})
}
