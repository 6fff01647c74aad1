package sitefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"airlift/bundle/builder"
)

const hintName = "use lower-case letters, digits and dashes, at most 63, for example monitoring"

var (
	exactVersion = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
	digest       = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// readManifests checks the manifests. Their contents are read by the builder.
func (r *reader) readManifests(doc document, site *builder.Site) {
	first := map[string]int{} // lines by name
	for n, m := range doc.Manifests {
		line := r.lineOf("manifests", n)
		name := m.Name.or(fmt.Sprintf("number %d", n+1))
		switch old, twice := first[m.Name.Value]; {
		case m.Name.Value == "":
			r.problems.Add(line, "add name: "+hintOfName(m), "manifest %s has no name", name)
		case !dnsLabel.MatchString(m.Name.Value):
			r.problems.Add(m.Name.Line, hintName, "%q is not a name for a manifest", m.Name.Value)
		case twice:
			r.problems.Add(m.Name.Line, "choose another name", "the name %q is written twice, first at line %d", m.Name.Value, old)
		}
		first[m.Name.Value] = m.Name.Line
		if t := m.Namespace; t.Value != "" && !dnsLabel.MatchString(t.Value) {
			r.problems.Add(t.Line, hintName, "%q is not the name of a namespace", t.Value)
		}
		if t := m.ImagePullPolicy; t.Value != "" && t.Value != "IfNotPresent" {
			r.problems.Add(t.Line, "write imagePullPolicy: IfNotPresent, or remove the line to keep the manifest's own policies", "imagePullPolicy %q is not supported", t.Value)
		}
		to := builder.Manifest{Name: m.Name.Value, Namespace: m.Namespace.Value, IfNotPresent: m.ImagePullPolicy.Value != "", At: r.problems.At(line)}
		switch {
		case m.Chart == nil && m.Path.Value == "":
			r.problems.Add(line, "add path: with a file or a directory, or chart: with a source", "manifest %s has no path and no chart", name)
		case m.Chart != nil && m.Path.Value != "":
			r.problems.Add(m.Path.Line, "remove one of them, or write two manifests", "manifest %s has both a path and a chart", name)
		case m.Chart != nil:
			to.Chart = r.readChart(name, line, m)
		default:
			to.Path = r.resolve(m.Path.Value)
			r.checkExists(m.Path, to.Path)
		}
		site.Manifests = append(site.Manifests, to)
	}
}

// hintOfName suggests a name.
func hintOfName(m manifest) string {
	if m.Chart != nil && m.Chart.Name.Value != "" {
		return m.Chart.Name.Value
	}
	return "monitoring, for example"
}

func (r *reader) readChart(name string, line int, m manifest) *builder.Chart {
	c := m.Chart
	to := &builder.Chart{Source: c.Source.Value, Name: c.Name.Value, Version: c.Version.Value, Digest: c.Digest.Value,
		Release: c.Release.or(m.Name.Value), Set: values(c.Set)}
	remote := strings.Contains(c.Source.Value, "://")
	oci := strings.HasPrefix(c.Source.Value, "oci://")
	switch {
	case c.Source.Value == "":
		r.problems.Add(line, "add source: with a directory, an archive, oci://REGISTRY/REPOSITORY or the URL of a chart repository", "the chart of manifest %s has no source", name)
		return to
	case remote && !oci && !strings.HasPrefix(to.Source, "https://") && !strings.HasPrefix(to.Source, "http://"):
		r.problems.Add(c.Source.Line, "start it with https://, http:// or oci://, or write the path of a directory or an archive", "%q is not a source of charts", c.Source.Value)
	case remote && c.Version.Value == "":
		r.problems.Add(c.Source.Line, "add version: with the chart's version, so that the same file gives the same bundle", "the chart of manifest %s has no version", name)
	case remote && !exactVersion.MatchString(c.Version.Value):
		r.problems.Add(c.Version.Line, "write an exact version, for example 1.2.3, so that the same file gives the same bundle", "version %q of the chart of manifest %s is not exact", c.Version.Value, name)
	case remote && !oci && c.Name.Value == "":
		r.problems.Add(c.Source.Line, "add name: with the chart's name in the repository", "the chart of manifest %s has no name", name)
	case (!remote || oci) && c.Name.Value != "":
		r.problems.Add(c.Name.Line, "remove the line: only a chart repository has charts of several names", "the chart of manifest %s needs no name", name)
	case !remote && c.Version.Value != "":
		r.problems.Add(c.Version.Line, "remove the line: the chart has its own version", "the chart of manifest %s is on this machine and needs no version", name)
	case !remote:
		to.Source = r.resolve(c.Source.Value)
		r.checkExists(c.Source, to.Source)
	}
	if t := c.Digest; t.Value != "" && !digest.MatchString(t.Value) {
		r.problems.Add(t.Line, "write sha256: and 64 hexadecimal digits; sha256sum of the archive prints them", "%q is not the digest of a chart", t.Value)
	}
	for _, t := range c.Values {
		path := r.resolve(t.Value)
		r.checkExists(t, path)
		to.Values = append(to.Values, path)
	}
	for _, t := range c.Set {
		if !strings.Contains(t.Value, "=") {
			r.problems.Add(t.Line, "write KEY=VALUE, for example replicaCount=2", "%q has no =", t.Value)
		}
	}
	return to
}

// checkExists checks a source of the user.
func (r *reader) checkExists(t text, path string) {
	if _, err := os.Stat(path); err != nil {
		r.unreadable(t, path, err)
	}
}

// unreadable reports why a source cannot be used.
func (r *reader) unreadable(t text, path string, err error) {
	hint := "correct the path; it is relative to the directory of " + r.problems.File
	if !errors.Is(err, fs.ErrNotExist) {
		r.problems.Add(t.Line, "correct the path, or allow this user to read it", "%v", err)
		return
	}
	if target, lerr := os.Readlink(path); lerr == nil {
		r.problems.Add(t.Line, "create the target, or write another path", "%q is a symbolic link to %q, which does not exist", path, target)
		return
	}
	r.problems.Add(t.Line, hint, "%q does not exist", path)
}
