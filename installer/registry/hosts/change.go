package hosts

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
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

const hostsFile = "hosts.toml"

// A Change is what makes the files of a host current.
type Change struct {
	Write  []pki.File
	Remove []string // paths
	// Left are the files and directories that Airlift does not manage. containerd asks the control planes for none of the images
	// of their registries.
	Left []string
	// Edited are the files that Airlift wrote and that someone changed: they stay, although no control plane serves images of
	// their registries any more, and name control planes.
	Edited []string
}

// Empty reports whether there is nothing to change.
func (c Change) Empty() bool { return len(c.Write)+len(c.Remove) == 0 }

// Change compares the files of a host with what a node with these registries has. Without control planes it has none.
// Files that Airlift did not write stay, also the site's files in a bundle.
func (n Node) Change(h *host.Host, registries []string) (c Change, err error) {
	if len(n.ControlPlanes) == 0 {
		registries = nil
	}
	wanted := map[string]bool{}
	for _, registry := range registries {
		f := find(h, registry)
		wanted[f.path] = true
		if err := f.read(); err != nil {
			return c, err
		}
		if f.left != "" {
			c.Left = append(c.Left, f.left)
			continue
		}
		if data := n.text(f.before); string(data) != string(f.data) || f.mode != f.now {
			c.Write = append(c.Write, pki.File{Path: f.path, Data: data, Mode: f.mode})
		}
	}
	slices.Sort(c.Left)
	c.Left = slices.Compact(c.Left)
	return c, c.clean(h, wanted)
}

// clean adds the files of registries that are not wanted any more, and the empty directories that a run left which was killed
// after it removed such a file.
func (c *Change) clean(h *host.Host, wanted map[string]bool) error {
	for _, e := range h.Records().Entries(ledger.Dir) {
		f := &file{host: h, path: path.Join(e.Name, hostsFile)}
		if path.Dir(e.Name) == render.RegistriesDir && !wanted[f.path] && filesystem.Exists(h.Path(e.Name)) && f.isFree() {
			c.Remove = append(c.Remove, f.path)
		}
	}
	for _, e := range h.Records().Entries(ledger.File) {
		if path.Base(e.Name) != hostsFile || path.Dir(path.Dir(e.Name)) != render.RegistriesDir || wanted[e.Name] {
			continue
		}
		f := &file{host: h, path: e.Name}
		if err := f.load(); err != nil {
			return err
		}
		own := ownPart(f.data)
		switch {
		case !e.Site && !f.isOurs() && controlPlaneURL.Match(f.data):
			c.Edited = append(c.Edited, f.path)
		case f.data == nil || !f.isOurs() || string(own) == string(f.data):
		case own == nil:
			c.Remove = append(c.Remove, f.path)
		default:
			c.Write = append(c.Write, pki.File{Path: f.path, Data: own, Mode: f.now})
		}
	}
	return nil
}

// Apply changes the files.
func (c Change) Apply(h *host.Host) error {
	for _, f := range c.Write {
		if _, err := h.WriteFile(f.Path, f.Data, f.Mode); err != nil {
			return err
		}
	}
	for _, name := range c.Remove {
		if err := h.Remove(name); err != nil {
			return err
		}
		// containerd would use an empty directory, and not _default.
		if err := h.RemoveEmpty(path.Dir(name)); err != nil {
			return err
		}
	}
	return nil
}

// Check reads the files that containerd reads at each pull: if one is missing or damaged, every pull of a registry
// fails.
func (n Node) Check(h *host.Host) error {
	const hint = "see ./install docs certificates: a kubelet whose certificate has expired"
	ca, err := os.ReadFile(h.Path(n.CA))
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		err = fmt.Errorf("reading %s: it has no certificate", n.CA)
	}
	if err != nil {
		return fault.Wrap(fmt.Errorf("containerd needs the cluster's CA for the embedded registry: %w", err), fault.Failure, "copy it from another node")
	}
	client, err := os.ReadFile(h.Path(n.Client))
	if err == nil {
		_, err = tls.X509KeyPair(client, client)
	}
	if err != nil {
		return fault.Wrap(fmt.Errorf("containerd needs the kubelet's certificate for the embedded registry: %w", err), fault.Failure, hint)
	}
	return nil
}

// A file is the hosts.toml of one registry.
type file struct {
	host *host.Host
	path string

	data   []byte      // nil if it does not exist
	now    fs.FileMode // its present mode
	mode   fs.FileMode // the mode that it gets
	before []byte      // the site's part
	left   string      // why it stays: the path that Airlift does not manage
}

// find returns the file that containerd uses, or would use, for a registry.
func find(h *host.Host, registry string) *file {
	dirs := render.RegistryDirs(registry)
	for _, dir := range dirs {
		if filesystem.Exists(h.Path(dir)) {
			return &file{host: h, path: path.Join(dir, hostsFile)}
		}
	}
	return &file{host: h, path: path.Join(dirs[len(dirs)-1], hostsFile)}
}

// load reads the file, if it exists.
func (f *file) load() (err error) {
	info, err := os.Stat(f.host.Path(f.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		f.now = info.Mode().Perm()
		f.data, err = os.ReadFile(f.host.Path(f.path))
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", f.path, err)
	}
	return nil
}

// isOurs reports whether Airlift wrote the file as it is now, and not as the site's own file in a bundle.
func (f *file) isOurs() bool {
	e, ok := f.host.Records().Find(ledger.File, f.path)
	return ok && !e.Site && e.Wrote(filesystem.Digest(f.data))
}

// read loads the file, and finds out what it is to have.
func (f *file) read() error {
	if err := f.load(); err != nil {
		return err
	}
	switch {
	case f.data == nil && !f.isFree():
		f.left = path.Dir(f.path) // containerd reads the certificates there
	case f.data != nil && !f.isOurs():
		f.left = f.path
	case f.data != nil && ownPart(f.data) != nil:
		f.before, f.mode = ownPart(f.data), f.now
	default:
		return f.useDefault()
	}
	return nil
}

// isFree reports whether the directory of the file is missing or empty.
func (f *file) isFree() bool {
	names, err := os.ReadDir(f.host.Path(path.Dir(f.path)))
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0
}

// useDefault uses what init or join configured for all registries that have no configuration of their own: containerd reads
// that no longer when this registry has a file. A default that Airlift did not write stays in use.
func (f *file) useDefault() error {
	d := &file{host: f.host, path: path.Join(render.RegistryDirs(config.DefaultRegistry)[0], hostsFile)}
	if err := d.load(); err != nil {
		return err
	}
	switch {
	case d.data == nil && !filesystem.Exists(f.host.Path(path.Dir(d.path))):
		f.mode = 0o644
	case d.data == nil:
		f.left = path.Dir(d.path)
	case !d.isOurs():
		f.left = d.path
	default:
		f.before, f.mode = []byte(copied+strings.TrimLeft(string(d.data), "\n")), d.now
	}
	return nil
}

// A State is what a host has for one registry.
type State struct {
	Registry string `json:"registry"`
	File     string `json:"file"`
	// ControlPlanes are the addresses of the registries that containerd asks, in its order.
	ControlPlanes []string `json:"controlPlanes,omitempty"`
	// Left is the file or directory that Airlift does not manage, "" if there is none.
	Left string `json:"left,omitempty"`
}

// controlPlaneURL matches the URL of a control plane's registry in a hosts.toml.
var controlPlaneURL = regexp.MustCompile(fmt.Sprintf(`(?m)^(server = |\[host\.)"https://([0-9a-f.:\[\]]+:%d)"`, config.RegistryPort))

// States reads what a host has for registries.
func States(h *host.Host, registries []string) (list []State, err error) {
	for _, registry := range registries {
		f := find(h, registry)
		if err := f.read(); err != nil {
			return nil, err
		}
		s := State{Registry: registry, File: f.path, Left: f.left}
		server := ""
		for _, match := range controlPlaneURL.FindAllSubmatch(f.data, -1) {
			if string(match[1]) == "server = " {
				server = string(match[2])
				continue
			}
			s.ControlPlanes = append(s.ControlPlanes, string(match[2]))
		}
		if server != "" {
			s.ControlPlanes = append(s.ControlPlanes, server)
		}
		list = append(list, s)
	}
	return list, nil
}
