package fetch

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
)

// A Source is where a fact comes from: a checksum, a digest, a version.
type Source struct {
	// Site is the mirror's URL, or the site itself with its scheme.
	Site string `json:"site"`
	// URL is what was really asked for there.
	URL string `json:"url"`
	// Redirects are the sites that it redirected to, in turn. They are recorded
	// without paths, which may be signed and change from minute to minute.
	Redirects []string `json:"redirects,omitempty"`
}

// Sites lists every site and mirror that took part in the answer.
func (s Source) Sites() []string { return append([]string{s.Site}, s.Redirects...) }

// Source returns who answers a request for u.
func (t *Mirrors) Source(u *url.URL) Source {
	return Source{Site: t.Site(u), URL: t.Real(u).String()}
}

// Real returns where a request for u really goes.
func (t *Mirrors) Real(u *url.URL) *url.URL {
	if r := t.find(u.Host); r != nil {
		return r.rewrite(u)
	}
	return u
}

// Site returns who answers requests for u: the URL of a mirror, or the site itself
// with its scheme.
func (t *Mirrors) Site(u *url.URL) string {
	if r := t.find(u.Host); r != nil {
		return r.URL.String()
	}
	return u.Scheme + "://" + u.Host
}

// MirrorOf lists the hosts that a site is the mirror of; none if it is not one.
func (t *Mirrors) MirrorOf(site string) (hosts []string) {
	for _, r := range t.rules {
		if r.URL.String() == site {
			hosts = append(hosts, r.Host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// redirects follows the redirects of one request and records their sites.
type redirects struct {
	mirrors *Mirrors
	sites   []string
}

func (f *redirects) check(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	// The answer knows the request as it was sent, which may be to a mirror.
	from, to := req.Response.Request.URL, f.mirrors.Real(req.URL)
	if from.Scheme == "https" && to.Scheme != "https" {
		return &RedirectError{from.Redacted(), to.Redacted()}
	}
	last := f.mirrors.Site(via[len(via)-1].URL)
	if site := f.mirrors.Site(req.URL); site != last {
		f.sites = append(f.sites, site)
	}
	return nil
}
