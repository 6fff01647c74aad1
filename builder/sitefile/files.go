package sitefile

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"airlift/builder"
	"airlift/bundle"
)

const (
	allNodes    = "all"
	defaultMode = "0644"
)

// readFiles checks the files and the systemd units, which are files as well.
func (r *reader) readFiles(site *builder.Site) {
	targets := map[string]string{} // where paths on the hosts are written in the file
	for n, f := range r.Files {
		at := item("files", n)
		to := builder.File{SiteFile: bundle.SiteFile{Path: f.Path, Mode: r.mode(at+".mode", f.Mode), Nodes: r.nodes(at+".nodes", f.Nodes)}, At: r.At(r.Lines[at])}
		to.Source = r.source(at, f.Source, fmt.Sprintf("file %q", f.Path))
		if f.Path == "" {
			r.refuse(at, "add path: with the absolute path on the host", "file number %d has no path", n+1)
		} else {
			r.checkTarget(targets, at+".path", f.Path)
		}
		site.Files = append(site.Files, to)
	}
	for n, u := range r.SystemdUnits {
		at := item("systemdUnits", n)
		name, nameAt := u.Name, at+".name"
		if name == "" {
			name, nameAt = path.Base(u.Source), at+".source"
		}
		to := builder.File{SiteFile: bundle.SiteFile{Path: bundle.UnitDir + name, Mode: defaultMode, Nodes: r.nodes(at+".nodes", u.Nodes)}, At: r.At(r.Lines[at])}
		to.Source = r.source(at, u.Source, fmt.Sprintf("unit number %d", n+1))
		if to.Source == "" && u.Name == "" {
			continue
		}
		if r.checkUnitName(nameAt, name) && r.checkTarget(targets, nameAt, to.Path) {
			r.checkInstallSection(at, to.Source, name)
		}
		site.Files = append(site.Files, to)
		site.Units = append(site.Units, bundle.SiteUnit{Name: name, Nodes: to.Nodes})
	}
	for p, at := range targets {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			if parent, ok := targets[dir]; ok {
				r.refuse(at, "change one of the paths", "path %q is below %q, which is a file at line %d", p, dir, r.Lines[parent])
			}
		}
	}
}

var octal = regexp.MustCompile(`^0?([0-7])?([0-7]{3})$`)

// mode returns the permissions as four octal digits.
func (r *reader) mode(at, written string) string {
	if written == "" {
		return defaultMode
	}
	m := octal.FindStringSubmatch(written)
	decimal := decimalMode(written)
	switch {
	case decimal != "" && m == nil:
		r.refuse(at, "write "+decimal, "mode %q is the decimal number of %s, as in Kubernetes' JSON", written, decimal)
		return defaultMode
	case decimal != "":
		r.refuse(at, "write "+decimal+", or 0"+written+" for that mode",
			"mode %q is the decimal number of %s, as in Kubernetes' JSON; as octal digits it is the unusual mode 0%s", written, decimal, written)
		return defaultMode
	case m == nil:
		r.refuse(at, "write the permissions as octal digits, for example 0644 or 0755", "mode %q is not a file mode", written)
		return defaultMode
	case m[1] != "" && m[1] != "0":
		r.refuse(at, "write 0"+m[2]+": Airlift writes no files with the setuid, setgid or sticky bit", "mode %q has special bits", written)
	}
	return "0" + m[2]
}

// usualModes are the modes that files have in practice.
var usualModes = []string{"0400", "0440", "0444", "0500", "0540", "0544", "0550", "0555", "0600", "0640", "0644", "0660", "0664", "0666",
	"0700", "0710", "0711", "0740", "0744", "0750", "0751", "0754", "0755", "0770", "0771", "0775", "0777"}

// decimalMode returns the mode whose decimal number was written, 0644 for 420, or "". If the digits
// are also a usual octal mode, it returns "".
func decimalMode(value string) string {
	n, err := strconv.ParseUint(value, 10, 16)
	mode := fmt.Sprintf("%04o", n)
	if err != nil || strings.HasPrefix(value, "0") || slices.Contains(usualModes, "0"+value) || !slices.Contains(usualModes, mode) {
		return ""
	}
	return mode
}

// nodes returns the value of the manifest's field.
func (r *reader) nodes(at, written string) string {
	all := []string{allNodes, bundle.ControlPlanes, bundle.Workers}
	switch {
	case written == allNodes:
		return ""
	case written != "" && !slices.Contains(all, written):
		r.refuse(at, "write one of "+strings.Join(all, ", "), "nodes %q is not a kind of node", written)
	}
	return written
}

// source returns the path of a file that can be read and is not empty, or "".
func (r *reader) source(item, written, of string) string {
	if written == "" {
		r.refuse(item, "add source: with a file of this machine", "%s has no source", of)
		return ""
	}
	at, path := item+".source", r.resolve(written)
	i, err := os.Stat(path)
	if err != nil {
		r.unreadable(at, path, err)
		return ""
	}
	switch {
	case i.IsDir():
		r.refuse(at, "list the files of the directory, each with its own path", "source %q is a directory", path)
		return ""
	case !i.Mode().IsRegular():
		r.refuse(at, "write the path of a regular file", "source %q is not a regular file", path)
		return ""
	case i.Size() == 0:
		r.refuse(at, "write content to it, or remove it from the list", "source %q is empty", path)
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		r.unreadable(at, path, err)
		return ""
	}
	f.Close()
	return path
}

// checkTarget checks a path on the hosts, and adds it to the targets.
func (r *reader) checkTarget(targets map[string]string, at, p string) bool {
	printable := strings.IndexFunc(p, func(c rune) bool { return c < 0x20 || c > 0x7e }) < 0
	first, twice := targets[p]
	switch owner := ownerOf(p); {
	case !printable || len(p) > 4096:
		r.refuse(at, "use printable ASCII characters, at most 4096", "path %q is not supported", p)
	case !path.IsAbs(p):
		r.refuse(at, "write the absolute path on the host, for example /etc/motd", "path %q is not absolute", p)
	case path.Clean(p) != p || p == "/":
		r.refuse(at, "write the path of a file without ., .., double slashes and a slash at the end", "path %q is not a clean path of a file", p)
	case owner != "":
		r.refuse(at, "choose another path: "+owner, "path %q is not for the site's files", p)
	case twice:
		r.refuse(at, "remove one of them; files for control planes and for workers need different paths", "path %q is written twice, first at line %d", p, r.Lines[first])
		return true
	default:
		targets[p] = at
		return true
	}
	return false
}
