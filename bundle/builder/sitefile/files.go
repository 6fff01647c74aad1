package sitefile

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder"
)

const (
	allNodes    = "all"
	defaultMode = "0644"
)

// A target is a path on the hosts, and where it is written in the file.
type target struct {
	path string
	line int
}

// readFiles checks the files and the systemd units, which are files as well.
func (r *reader) readFiles(doc document, site *builder.Site) {
	var targets []target
	for n, f := range doc.Files {
		line := r.lineOf("files", n)
		to := builder.File{SiteFile: bundle.SiteFile{Path: f.Path.Value, Mode: r.mode(f.Mode), Nodes: r.nodes(f.Nodes)}, At: r.problems.At(line)}
		to.Source = r.source(f.Source, line, fmt.Sprintf("file %q", f.Path.Value))
		if f.Path.Value == "" {
			r.problems.Add(line, "add path: with the absolute path on the host", "file number %d has no path", n+1)
		} else if r.checkTarget(f.Path) {
			targets = append(targets, target{f.Path.Value, f.Path.Line})
		}
		site.Files = append(site.Files, to)
	}
	for n, u := range doc.SystemdUnits {
		line := r.lineOf("systemdUnits", n)
		name := u.Name
		if name.Value == "" {
			name = text{path.Base(u.Source.Value), u.Source.Line}
		}
		to := builder.File{SiteFile: bundle.SiteFile{Path: bundle.UnitDir + name.Value, Mode: defaultMode, Nodes: r.nodes(u.Nodes)}, At: r.problems.At(line)}
		to.Source = r.source(u.Source, line, fmt.Sprintf("unit number %d", n+1))
		if to.Source == "" && u.Name.Value == "" {
			continue
		}
		if r.checkUnitName(name) && r.checkTarget(text{to.Path, name.Line}) {
			targets = append(targets, target{to.Path, name.Line})
			r.checkInstallSection(text{to.Source, line}, name.Value)
		}
		site.Files = append(site.Files, to)
		site.Units = append(site.Units, bundle.SiteUnit{Name: name.Value, Nodes: to.Nodes})
	}
	r.checkTargets(targets)
}

var octal = regexp.MustCompile(`^0?([0-7])?([0-7]{3})$`)

// mode returns the permissions as four octal digits.
func (r *reader) mode(t text) string {
	if t.Value == "" {
		return defaultMode
	}
	m := octal.FindStringSubmatch(t.Value)
	decimal := decimalMode(t.Value)
	switch {
	case decimal != "" && m == nil:
		r.problems.Add(t.Line, "write "+decimal, "mode %q is the decimal number of %s, as in Kubernetes' JSON", t.Value, decimal)
		return defaultMode
	case decimal != "":
		r.problems.Add(t.Line, "write "+decimal+", or 0"+t.Value+" for that mode",
			"mode %q is the decimal number of %s, as in Kubernetes' JSON; as octal digits it is the unusual mode 0%s", t.Value, decimal, t.Value)
		return defaultMode
	case m == nil:
		r.problems.Add(t.Line, "write the permissions as octal digits, for example 0644 or 0755", "mode %q is not a file mode", t.Value)
		return defaultMode
	case m[1] != "" && m[1] != "0":
		r.problems.Add(t.Line, "write 0"+m[2]+": Airlift writes no files with the setuid, setgid or sticky bit", "mode %q has special bits", t.Value)
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
func (r *reader) nodes(t text) string {
	all := []string{allNodes, bundle.ControlPlanes, bundle.Workers}
	switch {
	case t.Value == "" || t.Value == allNodes:
		return ""
	case !slices.Contains(all, t.Value):
		r.problems.Add(t.Line, "write one of "+strings.Join(all, ", "), "nodes %q is not a kind of node", t.Value)
	}
	return t.Value
}

// source returns the path of a file that can be read and is not empty, or "".
func (r *reader) source(t text, line int, of string) string {
	if t.Value == "" {
		r.problems.Add(line, "add source: with a file of this machine", "%s has no source", of)
		return ""
	}
	path := r.resolve(t.Value)
	i, err := os.Stat(path)
	if err != nil {
		r.unreadable(t, path, err)
		return ""
	}
	switch {
	case i.IsDir():
		r.problems.Add(t.Line, "list the files of the directory, each with its own path", "source %q is a directory", path)
		return ""
	case !i.Mode().IsRegular():
		r.problems.Add(t.Line, "write the path of a regular file", "source %q is not a regular file", path)
		return ""
	case i.Size() == 0:
		r.problems.Add(t.Line, "write content to it, or remove it from the list", "source %q is empty", path)
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		r.unreadable(t, path, err)
		return ""
	}
	f.Close()
	return path
}

// checkTarget checks a path on the hosts.
func (r *reader) checkTarget(t text) bool {
	p := t.Value
	printable := strings.IndexFunc(p, func(c rune) bool { return c < 0x20 || c > 0x7e }) < 0
	switch owner := ownerOf(p); {
	case !printable || len(p) > 4096:
		r.problems.Add(t.Line, "use printable ASCII characters, at most 4096", "path %q is not supported", p)
	case !path.IsAbs(p):
		r.problems.Add(t.Line, "write the absolute path on the host, for example /etc/motd", "path %q is not absolute", p)
	case path.Clean(p) != p || p == "/":
		r.problems.Add(t.Line, "write the path of a file without ., .., double slashes and a slash at the end", "path %q is not a clean path of a file", p)
	case owner != "":
		r.problems.Add(t.Line, "choose another path: "+owner, "path %q is not for the site's files", p)
	default:
		return true
	}
	return false
}

// checkTargets refuses a path that is written twice, and one that would be both a file and a
// directory.
func (r *reader) checkTargets(targets []target) {
	line := map[string]int{}
	for _, t := range targets {
		if first, twice := line[t.path]; twice {
			r.problems.Add(t.line, "remove one of them; files for control planes and for workers need different paths", "path %q is written twice, first at line %d", t.path, first)
			continue
		}
		line[t.path] = t.line
	}
	for _, t := range targets {
		for dir := path.Dir(t.path); dir != "/"; dir = path.Dir(dir) {
			if parent, ok := line[dir]; ok {
				r.problems.Add(t.line, "change one of the paths", "path %q is below %q, which is a file at line %d", t.path, dir, parent)
			}
		}
	}
}
