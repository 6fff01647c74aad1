package sitefile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"airlift/builder"
)

const hintName = "use lower-case letters, digits and dashes, at most 63, for example monitoring"

var (
	exactVersion = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
	digest       = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// readManifests checks the manifests. Their contents are read by the builder.
func (r *reader) readManifests(site *builder.Site) {
	first := map[string]string{} // places by name
	for n, m := range r.Manifests {
		at := item("manifests", n)
		name := cmp.Or(m.Name, fmt.Sprintf("number %d", n+1))
		switch old, twice := first[m.Name]; {
		case m.Name == "":
			suggestion := "monitoring, for example"
			if m.Chart != nil {
				suggestion = cmp.Or(m.Chart.Name, suggestion)
			}
			r.refuse(at, "add name: "+suggestion, "manifest %s has no name", name)
		case !dnsLabel.MatchString(m.Name):
			r.refuse(at+".name", hintName, "%q is not a name for a manifest", m.Name)
		case twice:
			r.refuse(at+".name", "choose another name", "the name %q is written twice, first at line %d", m.Name, r.Lines[old])
		}
		first[m.Name] = at + ".name"
		if m.Namespace != "" && !dnsLabel.MatchString(m.Namespace) {
			r.refuse(at+".namespace", hintName, "%q is not the name of a namespace", m.Namespace)
		}
		if m.ImagePullPolicy != "" && m.ImagePullPolicy != "IfNotPresent" {
			r.refuse(at+".imagePullPolicy", "write imagePullPolicy: IfNotPresent, or remove the line to keep the manifest's own policies", "imagePullPolicy %q is not supported", m.ImagePullPolicy)
		}
		m.IfNotPresent, m.At = m.ImagePullPolicy != "", r.At(r.Lines[at])
		switch {
		case m.Chart == nil && m.Path == "":
			r.refuse(at, "add path: with a file or a directory, or chart: with a source", "manifest %s has no path and no chart", name)
		case m.Chart != nil && m.Path != "":
			r.refuse(at+".path", "remove one of them, or write two manifests", "manifest %s has both a path and a chart", name)
		case m.Chart != nil:
			r.readChart(at, name, m)
		default:
			m.Path = r.resolve(m.Path)
			r.checkExists(at+".path", m.Path)
		}
		site.Manifests = append(site.Manifests, m.Manifest)
	}
}

func (r *reader) readChart(at, name string, m manifest) {
	c := m.Chart
	c.Release = cmp.Or(c.Release, m.Name)
	in := at + ".chart"
	remote := strings.Contains(c.Source, "://")
	oci := strings.HasPrefix(c.Source, "oci://")
	switch {
	case c.Source == "":
		r.refuse(at, "add source: with a directory, an archive, oci://REGISTRY/REPOSITORY or the URL of a chart repository", "the chart of manifest %s has no source", name)
		return
	case remote && !oci && !strings.HasPrefix(c.Source, "https://") && !strings.HasPrefix(c.Source, "http://"):
		r.refuse(in+".source", "start it with https://, http:// or oci://, or write the path of a directory or an archive", "%q is not a source of charts", c.Source)
	case remote && c.Version == "":
		r.refuse(in+".source", "add version: with the chart's version, so that the same file gives the same bundle", "the chart of manifest %s has no version", name)
	case remote && !exactVersion.MatchString(c.Version):
		r.refuse(in+".version", "write an exact version, for example 1.2.3, so that the same file gives the same bundle", "version %q of the chart of manifest %s is not exact", c.Version, name)
	case remote && !oci && c.Name == "":
		r.refuse(in+".source", "add name: with the chart's name in the repository", "the chart of manifest %s has no name", name)
	case (!remote || oci) && c.Name != "":
		r.refuse(in+".name", "remove the line: only a chart repository has charts of several names", "the chart of manifest %s needs no name", name)
	case !remote && c.Version != "":
		r.refuse(in+".version", "remove the line: the chart has its own version", "the chart of manifest %s is on this machine and needs no version", name)
	case !remote:
		c.Source = r.resolve(c.Source)
		r.checkExists(in+".source", c.Source)
	}
	if c.Digest != "" && !digest.MatchString(c.Digest) {
		r.refuse(in+".digest", "write sha256: and 64 hexadecimal digits; sha256sum of the archive prints them", "%q is not the digest of a chart", c.Digest)
	}
	for i, path := range c.Values {
		c.Values[i] = r.resolve(path)
		r.checkExists(item(in+".values", i), c.Values[i])
	}
	for i, set := range c.Set {
		if !strings.Contains(set, "=") {
			r.refuse(item(in+".set", i), "write KEY=VALUE, for example replicaCount=2", "%q has no =", set)
		}
	}
}

// checkExists checks a source of the user.
func (r *reader) checkExists(at, path string) {
	if _, err := os.Stat(path); err != nil {
		r.unreadable(at, path, err)
	}
}

// unreadable reports why a source cannot be used.
func (r *reader) unreadable(at, path string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		r.refuse(at, "correct the path, or allow this user to read it", "%v", err)
	} else if target, lerr := os.Readlink(path); lerr == nil {
		r.refuse(at, "create the target, or write another path", "%q is a symbolic link to %q, which does not exist", path, target)
	} else {
		r.refuse(at, "correct the path; it is relative to the directory of "+r.List.File, "%q does not exist", path)
	}
}
