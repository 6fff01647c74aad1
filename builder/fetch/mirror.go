package fetch

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"airlift/internal/fault"
)

// A Mirror sends requests for Host to URL instead. Host is the name of a registry or
// download site, with its port if it has one: "registry.k8s.io", "dl.k8s.io",
// "github.com".
type Mirror struct {
	Host string
	URL  *url.URL
}

const mirrorHint = "use --mirror HOST=URL, for example registry.k8s.io=https://mirror.example.com or dl.k8s.io=http://10.0.0.5:8080/k8s"

// ParseMirror parses HOST=URL. Its errors are usage errors.
func ParseMirror(s string) (Mirror, error) {
	bad := func(format string, args ...any) (Mirror, error) {
		return Mirror{}, fault.New(fault.Usage, "mirror %q: %w", s, fmt.Errorf(format, args...)).Hint(mirrorHint)
	}
	host, raw, ok := strings.Cut(s, "=")
	switch {
	case !ok:
		return bad("no = between host and URL")
	case host == "" || raw == "":
		return bad("host or URL is empty")
	case strings.Contains(host, "://") || strings.ContainsAny(host, "/@ "):
		return bad("%q is not a plain host name", host)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return bad("%w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("%q does not begin with http:// or https://", raw)
	case u.Host == "":
		return bad("%q has no host", raw)
	case u.User != nil:
		return bad("a URL with a user name or password is not allowed, because it would appear in logs; registry credentials are read from docker's config file")
	case u.RawQuery != "" || u.Fragment != "":
		return bad("%q has a query or a fragment", raw)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return Mirror{strings.ToLower(host), u}, nil
}

// Shown returns a URL as it may be printed and recorded: without its user, who may be a token, and
// without its query.
func Shown(u *url.URL) string {
	shown := *u
	shown.User, shown.RawQuery = nil, ""
	return shown.String()
}

// Mirrors is a transport that rewrites requests to mirrored hosts, including requests that follow a
// redirect.
//
// It also limits the size of every answer and the time without data, and refuses redirects
// from https to http.
type Mirrors struct {
	base  http.RoundTripper
	rules []*rule
	// StallAfter is the time without data after which a connection fails.
	StallAfter time.Duration
}

type rule struct {
	Mirror
	used atomic.Bool
}

// NewMirrors returns a transport that sends the rewritten requests to base.
func NewMirrors(base http.RoundTripper, mirrors []Mirror) (*Mirrors, error) {
	t := &Mirrors{base: base, StallAfter: stallAfter}
	for _, m := range mirrors {
		if t.find(m.Host) != nil {
			return nil, fault.New(fault.Usage, "host %q has two mirrors", m.Host).Hint("give one --mirror for each host")
		}
		t.rules = append(t.rules, &rule{Mirror: m})
	}
	return t, nil
}

// hubNames maps the host names of Docker Hub to the name in its images' references.
var hubNames = map[string]string{"index.docker.io": "docker.io", "registry-1.docker.io": "docker.io"}

func (t *Mirrors) find(host string) *rule {
	host = strings.ToLower(host)
	for _, name := range []string{host, hubNames[host]} {
		for _, r := range t.rules {
			if r.Host == name {
				return r
			}
		}
	}
	return nil
}

// Lookup returns the URL of the mirror for host, if there is one.
func (t *Mirrors) Lookup(host string) (*url.URL, bool) {
	if r := t.find(host); r != nil {
		return r.URL, true
	}
	return nil, false
}

// Unused lists the mirrored hosts that received no request. Their names may be
// misspelt.
func (t *Mirrors) Unused() []string {
	var hosts []string
	for _, r := range t.rules {
		if !r.used.Load() {
			hosts = append(hosts, r.Host)
		}
	}
	return hosts
}

// suffix marks the cache keys of facts that came through these mirrors.
func (t *Mirrors) suffix() string {
	var list []string
	for _, r := range t.rules {
		list = append(list, "\nthrough "+r.Host+"="+r.URL.String())
	}
	slices.Sort(list)
	return strings.Join(list, "")
}

// RoundTrip implements http.RoundTripper.
func (t *Mirrors) RoundTrip(req *http.Request) (*http.Response, error) {
	r := t.find(req.URL.Host)
	if r == nil {
		resp, err := roundTrip(t.base, req, t.StallAfter)
		return t.keepTLS(req.URL, resp, err)
	}
	r.used.Store(true)
	out := req.Clone(req.Context())
	out.URL = r.rewrite(req.URL)
	out.Host = ""
	resp, err := roundTrip(t.base, out, t.StallAfter)
	if err != nil {
		return nil, fmt.Errorf("requesting from mirror %s: %w", r.URL.Host, err)
	}
	if to := resp.Header.Get("Location"); to != "" {
		if loc, err := out.URL.Parse(to); err == nil {
			resp.Header.Set("Location", r.restore(req.URL, loc).String())
		}
	}
	for n, challenge := range resp.Header.Values("WWW-Authenticate") {
		resp.Header["Www-Authenticate"][n] = realm.ReplaceAllStringFunc(challenge, func(s string) string {
			at, err := url.Parse(realm.FindStringSubmatch(s)[1])
			if err != nil {
				return s
			}
			return `realm="` + r.restore(req.URL, at).String() + `"`
		})
	}
	// resp.Request stays the request to the mirror: whether it used TLS decides which
	// token services a registry may name.
	return t.keepTLS(out.URL, resp, nil)
}

// realm matches the URL of a registry's token service.
var realm = regexp.MustCompile(`realm="([^"]*)"`)

// rewrite returns the mirror's URL for u. It puts the mirror's path before the path of
// the request. A mirror path that begins with /v2, the path of the registry API,
// replaces the /v2 of the request to a repository.
func (r *rule) rewrite(u *url.URL) *url.URL {
	to := *u
	to.Scheme, to.Host = r.URL.Scheme, r.URL.Host
	path, raw := u.Path, u.EscapedPath()
	if r.isAPI() && path == "/v2/" {
		to.Path, to.RawPath = path, "" // the API itself, which is at the root of every registry
		return &to
	}
	if r.isAPI() {
		path, raw = strings.TrimPrefix(path, "/v2"), strings.TrimPrefix(raw, "/v2")
	}
	to.Path, to.RawPath = r.URL.Path+path, r.URL.EscapedPath()+raw
	return &to
}

func (r *rule) isAPI() bool { return r.URL.Path == "/v2" || strings.HasPrefix(r.URL.Path, "/v2/") }

// restore is the inverse of rewrite, for a URL in an answer (a redirect or a token
// service). A URL inside the mirror gets the name of the original host, so that the
// next request also uses the mirror and credentials for the host still apply.
func (r *rule) restore(asked, loc *url.URL) *url.URL {
	inside := loc.Path == r.URL.Path || strings.HasPrefix(loc.Path, r.URL.Path+"/")
	if loc.Scheme != r.URL.Scheme || loc.Host != r.URL.Host || !inside {
		return loc
	}
	back := *loc
	back.Scheme, back.Host = asked.Scheme, asked.Host
	back.Path, back.RawPath = strings.TrimPrefix(loc.Path, r.URL.Path), strings.TrimPrefix(loc.EscapedPath(), r.URL.EscapedPath())
	if r.isAPI() {
		back.Path, back.RawPath = "/v2"+back.Path, "/v2"+back.RawPath
	}
	return &back
}
