package images

import (
	"net/url"
	"regexp"
	"strings"
)

// The specification's limits of names, tags and digests.
var (
	componentForm = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
	nameForm      = regexp.MustCompile(`^` + componentForm + `(?:/` + componentForm + `)*$`)
	tagForm       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	digestForm    = regexp.MustCompile(`^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[A-Za-z0-9=_-]{1,256}$`)
	hostForm      = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?$`)
)

// maxName is the longest name that clients accept, with the registry, in bytes.
const maxName = 255

// A target is what the path of a request names.
type target struct {
	name string // as in the path
	kind string // "manifests", "blobs", "tags", "referrers"; empty for /v2/
	ref  string // tag, digest, or "list"
}

// parsePath returns false for a path that names nothing.
func parsePath(u *url.URL) (t target, ok bool) {
	rest, ok := strings.CutPrefix(u.Path, "/v2/")
	// An encoded slash would be a part of a name for others, and a separator here.
	if !ok || strings.Contains(strings.ToLower(u.RawPath), "%2f") {
		return t, false
	}
	if rest == "" {
		return t, true
	}
	parts := strings.Split(rest, "/")
	n := len(parts)
	if n < 3 {
		return t, false
	}
	t = target{strings.Join(parts[:n-2], "/"), parts[n-2], parts[n-1]}
	switch t.kind {
	case "manifests", "blobs", "referrers":
		return t, true
	}
	return t, t.kind == "tags" && t.ref == "list"
}

// repositoryName returns the name of a repository with its registry, as in a catalog. ns is the registry, or empty if
// the name begins with it. Docker Hub's official images have the prefix library/.
func repositoryName(ns, name string) (full string, ok bool) {
	host, path := ns, name
	if ns == "" {
		if host, path, ok = strings.Cut(name, "/"); !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
			return "", false
		}
	}
	switch host {
	case "index.docker.io", "registry-1.docker.io":
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	full = host + "/" + path
	return full, hostForm.MatchString(host) && nameForm.MatchString(path) && len(full) <= maxName
}
