package hosts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// RecordPath is the record of the site's registries, which a driver compares with cluster.yaml.
const RecordPath = ledger.StateDir + "/registries.json"

// unknown is the record of a host that has files and no record.
const unknown = "set by an earlier version, or by a command that did not finish"

// SiteFiles returns the files with which containerd of a host reaches the site's registries, and their record as the last one.
func SiteFiles(h *host.Host, registries []config.Registry) ([]pki.File, error) {
	var files []pki.File
	for _, registry := range registries {
		dir := path.Dir(find(h, registry.Host).path)
		for _, f := range render.RegistryFiles(registry, dir) {
			present, err := os.ReadFile(h.Path(f.Path))
			if err == nil {
				f.Data = Keep(f.Data, present)
			}
			files = append(files, f)
		}
	}
	before, err := readRecord(h)
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(config.RecordRegistries(registries, before), "", "  ")
	return append(files, pki.File{Path: RecordPath, Data: append(data, '\n'), Mode: 0o600}), err
}

// readRecord returns nil if there is no record.
func readRecord(h *host.Host) (*config.RegistryRecord, error) {
	data, err := os.ReadFile(h.Path(RecordPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &config.RegistryRecord{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fault.New(fault.Failure, "reading %s: %w", RecordPath, err).Hint("remove it: rm " + RecordPath + "; then configure the registries again, with all flags: ./install registry mirrors --help")
	}
	return r, nil
}

// SiteRecord returns the record of the site's registries on a host, nil if it has none of them.
func SiteRecord(h *host.Host) (*config.RegistryRecord, error) {
	r, err := readRecord(h)
	if r != nil || err != nil {
		return r, err
	}
	c := &SiteChange{common: &pki.File{Mode: 0o644}}
	if err := c.clean(h); err != nil {
		return nil, err
	}
	if c.Change.Empty() && len(c.Left) == 0 {
		return nil, nil
	}
	return &config.RegistryRecord{Settings: []string{unknown}}, nil
}

// A SiteChange gives a host the site's registries, and removes its former ones. Files that Airlift did not write stay.
type SiteChange struct {
	Change
	record pki.File
	known  bool // the record is on the host

	files map[string]*file // that are wanted, by their paths
	// common is the configuration of all registries that have none of their own; nil if it is not Airlift's.
	common *pki.File
	// texts are the contents of the files that stay.
	texts [][]byte
}

// NewSiteChange compares the files of a host with those for the registries.
func NewSiteChange(h *host.Host, registries []config.Registry) (*SiteChange, error) {
	files, err := SiteFiles(h, registries)
	if err != nil {
		return nil, err
	}
	last := len(files) - 1
	c := &SiteChange{record: files[last], files: map[string]*file{}, common: &pki.File{Mode: 0o644}}
	stay := map[string]bool{} // directories
	for _, f := range files[:last] {
		present := &file{host: h, path: f.Path}
		if err := present.load(); err != nil {
			return nil, err
		}
		c.files[f.Path] = present
		if left := present.unmanaged(); left != "" {
			stay[path.Dir(f.Path)] = true
			c.leave(left, present.data)
		}
	}
	for _, f := range files[:last] {
		if stay[path.Dir(f.Path)] {
			continue
		}
		if present := c.files[f.Path]; string(present.data) != string(f.Data) || present.now != f.Mode {
			c.Write = append(c.Write, f)
		}
		if f.Path == defaultPath {
			c.common = &f
		}
	}
	if common := (&file{host: h, path: defaultPath}); common.load() != nil || common.unmanaged() != "" {
		c.common = nil
	}
	now, _, err := filesystem.Look(h.Path(RecordPath))
	c.known = now == filesystem.Digest(c.record.Data)
	if err == nil {
		err = c.clean(h)
	}
	slices.Sort(c.Left)
	c.Left = slices.Compact(c.Left)
	return c, err
}

var defaultPath = path.Join(render.RegistryDirs(config.DefaultRegistry)[0], hostsFile)

func (c *SiteChange) leave(name string, text []byte) {
	c.Left, c.texts = append(c.Left, name), append(c.texts, text)
}

// unmanaged returns what Airlift did not write of this file, or of its directory without a hosts.toml; "" if it may be written.
func (f *file) unmanaged() string {
	if f.data != nil {
		if f.isOurs() {
			return ""
		}
		return f.path
	}
	dir := path.Dir(f.path)
	if filesystem.Exists(f.host.Path(path.Join(dir, hostsFile))) {
		return ""
	}
	entries, _ := os.ReadDir(f.host.Path(dir))
	for _, e := range entries {
		if other := (&file{host: f.host, path: path.Join(dir, e.Name())}); other.load() != nil || !other.isOurs() {
			return dir // without a hosts.toml, containerd reads the certificates there
		}
	}
	return ""
}

// clean adds what the host has of registries that are not wanted any more. What the embedded registry has in a file stays.
func (c *SiteChange) clean(h *host.Host) error {
	var certificates []string
	for _, e := range h.Records().Entries(ledger.File) {
		if e.Site || path.Dir(path.Dir(e.Name)) != render.RegistriesDir || c.files[e.Name] != nil {
			continue
		}
		f := &file{host: h, path: e.Name}
		if err := f.load(); err != nil {
			return err
		}
		switch {
		case f.data == nil:
		case !f.isOurs():
			c.leave(f.path, f.data)
		case path.Base(f.path) != hostsFile:
			certificates = append(certificates, f.path)
		default:
			c.cleanFile(f)
		}
	}
	for _, name := range certificates {
		if !slices.ContainsFunc(c.texts, func(text []byte) bool { return bytes.Contains(text, []byte(name)) }) {
			c.Remove = append(c.Remove, name)
		}
	}
	for _, e := range h.Records().Entries(ledger.Dir) { // a run was killed after it removed the last file
		f := &file{host: h, path: path.Join(e.Name, hostsFile)}
		if path.Dir(e.Name) == render.RegistriesDir && c.files[f.path] == nil && filesystem.Exists(h.Path(e.Name)) && f.isFree() {
			c.Remove = append(c.Remove, f.path)
		}
	}
	return nil
}

// cleanFile takes the site's part out of a hosts.toml. With the part of the embedded registry, it has what all registries have, which
// containerd reads no longer where a registry has a file.
func (c *SiteChange) cleanFile(f *file) {
	own := ownPart(f.data)
	_, embedded, found := bytes.Cut(f.data, []byte(added))
	switch {
	case own != nil && (!found || c.common == nil):
		c.Remove = append(c.Remove, f.path)
	case found && c.common != nil:
		before := copied + strings.TrimLeft(string(c.common.Data), "\n")
		data := slices.Concat(bytes.TrimRight([]byte(before), "\n"), []byte("\n"+added), embedded)
		if string(data) != string(f.data) || f.now != c.common.Mode {
			c.Write = append(c.Write, pki.File{Path: f.path, Data: data, Mode: c.common.Mode})
		}
	}
}

// Empty reports whether there is nothing to change.
func (c *SiteChange) Empty() bool { return c.Change.Empty() && c.known }

// Apply changes the files. Meanwhile the host has no record, so that a run that was killed is known.
func (c *SiteChange) Apply(h *host.Host) error {
	if c.Empty() {
		return nil
	}
	if err := h.Remove(RecordPath); err != nil {
		return err
	}
	if err := c.Change.Apply(h); err != nil {
		return err
	}
	if _, err := h.WriteFile(c.record.Path, c.record.Data, c.record.Mode); err != nil {
		return fmt.Errorf("recording the registries: %w", err)
	}
	return nil
}
