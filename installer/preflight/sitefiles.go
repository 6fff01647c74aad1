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
func (s *subject) siteFiles(context.Context) (found []Problem) {
	for _, f := range s.Files {
		if owner := s.owner(f.Path); owner != "" {
			found = append(found, Fail("build the bundle with another path", "the bundle's file %s: %s", f.Path, owner)...)
			continue
		}
		if err := s.host.SiteFileFits(f); err != nil {
			found = append(found, Fail(fault.Hint(err), "%v", err)...)
		}
	}
	return found
}

// packages requires that the packages of the bundle can be installed on this host. init and join install them before they check
// the host.
func (s *subject) packages(context.Context) []Problem {
	switch {
	case s.Packages != nil:
		return Fail(fault.Hint(s.Packages), "%v", s.Packages)
	case s.PendingPackages > 0:
		return Warn("no action needed: init and join install them first; to do that now: ./install packages", "%d packages of this file are not installed yet: other checks may miss what they bring", s.PendingPackages)
	}
	return nil
}

// owner returns a sentence about who owns a path on this host, or "" if it is free. It also
// knows the directories that the configuration chooses.
func (s *subject) owner(file string) string {
	for _, b := range s.Binaries {
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

func (s *subject) ownedDirs() []string {
	var dirs []string
	if s.Config.CertificatesDir != "" {
		dirs = append(dirs, s.Config.CertificatesDir)
	}
	for _, c := range ledger.Claims(s.Config, true, true) {
		dirs = append(dirs, c.Path)
	}
	return dirs
}
