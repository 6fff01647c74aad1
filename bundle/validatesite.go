package bundle

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

var (
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	mode     = regexp.MustCompile(`^0[0-7]{3}$`)
	unitName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9:_.@-]*\.[a-z]+$`)
)

// maxLabel is the maximum length of a DNS label, and so of a namespace's name.
const maxLabel = 63

// checkSite checks the site's own manifests, files and units.
func (v validator) checkSite(m *Manifest) error {
	for _, s := range m.Manifests {
		if err := v.checkManifest(s); err != nil {
			return err
		}
	}
	files := map[string]SiteFile{}
	last := ""
	for _, f := range m.Files {
		if err := v.checkFile(f); err != nil {
			return err
		}
		if f.Path <= last {
			return fmt.Errorf("file %q is listed twice or out of order", f.Path)
		}
		last = f.Path
		files[f.Path] = f
	}
	last = ""
	for _, u := range m.Units {
		f, ok := files[UnitDir+u.Name]
		switch {
		case !unitName.MatchString(u.Name):
			return fmt.Errorf("unit %q is not a systemd unit's name", u.Name)
		case u.Name <= last:
			return fmt.Errorf("unit %q is listed twice or out of order", u.Name)
		case !ok || f.Nodes != u.Nodes:
			return fmt.Errorf("unit %q: no file %q for the same nodes", u.Name, UnitDir+u.Name)
		}
		last = u.Name
	}
	return nil
}

func (v validator) checkManifest(s SiteManifest) error {
	if !dnsLabel.MatchString(s.Name) || len(s.Name) > maxLabel {
		return fmt.Errorf("manifest name %q does not match %s, or is longer than %d", s.Name, dnsLabel, maxLabel)
	}
	if s.Chart != "" {
		if err := checkText("chart", s.Chart); err != nil {
			return fmt.Errorf("manifest %q: %w", s.Name, err)
		}
	}
	if s.AddOn != "" {
		if err := checkText("addOn", s.AddOn); err != nil {
			return fmt.Errorf("manifest %q: %w", s.Name, err)
		}
	}
	if s.AddOn != "" && s.Chart != "" {
		return fmt.Errorf("manifest %q has both a chart and an add-on", s.Name)
	}
	if s.Namespace == "default" {
		return fmt.Errorf("manifest %q: namespace %q is the default and must be left out", s.Name, s.Namespace)
	}
	if s.Namespace != "" && (!dnsLabel.MatchString(s.Namespace) || len(s.Namespace) > maxLabel) {
		return fmt.Errorf("manifest %q: namespace %q does not match %s, or is longer than %d", s.Name, s.Namespace, dnsLabel, maxLabel)
	}
	if v.used[s.Entry()] {
		return fmt.Errorf("manifest %q is listed twice", s.Name)
	}
	e, ok := v.entries[s.Entry()]
	if !ok {
		return fmt.Errorf("manifest %q: entry %q does not exist", s.Name, s.Entry())
	}
	if e.Size > MaxManifest {
		return fmt.Errorf("manifest %q: %d bytes are more than the %d allowed", s.Name, e.Size, MaxManifest)
	}
	v.used[s.Entry()] = true
	return nil
}

func (v validator) checkFile(f SiteFile) error {
	if err := checkText("path", f.Path); err != nil {
		return err
	}
	if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" {
		return fmt.Errorf("file %q is not a clean absolute path", f.Path)
	}
	if !mode.MatchString(f.Mode) {
		return fmt.Errorf("file %q: mode %q is not four octal digits without special bits", f.Path, f.Mode)
	}
	if f.Nodes != "" && f.Nodes != ControlPlanes && f.Nodes != Workers {
		return fmt.Errorf("file %q: nodes %q are neither %s nor %s", f.Path, f.Nodes, ControlPlanes, Workers)
	}
	if _, ok := v.entries[f.Entry]; !ok || !strings.HasPrefix(f.Entry, FileDir) {
		return fmt.Errorf("file %q: entry %q does not exist in %s", f.Path, f.Entry, FileDir)
	}
	v.used[f.Entry] = true
	return nil
}
