package preflight

import (
	"context"
	"strings"

	"airlift/installer/host/ledger"
	"airlift/internal/fault"
	"airlift/internal/hostpath"
)

// siteFiles requires that the site's own files can be written, and do not replace what
// Airlift or a component writes. `bundle build` also refuses such paths.
func (s fileChecks) siteFiles(context.Context) []finding {
	var found []finding
	for _, f := range s.subject.Files {
		if owner := s.owner(f.Path); owner != "" {
			found = append(found, problem("build the bundle with another path", "the bundle's file %s: %s", f.Path, owner)...)
			continue
		}
		if err := s.subject.host.SiteFiles().SiteFileFits(f); err != nil {
			found = append(found, problem(fault.Hint(err), "%v", err)...)
		}
	}
	return found
}

// owner returns a sentence about who owns a path on this host, or "" if it is free. It also
// knows the directories that the configuration chooses.
func (s fileChecks) owner(file string) string {
	for _, b := range s.subject.Binaries {
		if file == b.Path {
			return "this binary belongs to Airlift"
		}
	}
	for _, dir := range s.ownedDirs() {
		if file == dir || strings.HasPrefix(file, dir+"/") {
			return "this directory belongs to Kubernetes"
		}
	}
	return hostpath.Owner(file)
}

func (s fileChecks) ownedDirs() []string {
	var dirs []string
	if s.subject.Config.CertificatesDir != "" {
		dirs = append(dirs, s.subject.Config.CertificatesDir)
	}
	for _, c := range ledger.Claims(s.subject.Config, true, true) {
		dirs = append(dirs, c.Path)
	}
	return dirs
}
