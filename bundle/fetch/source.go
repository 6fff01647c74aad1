package fetch

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
)

// A Source is the source of a fact: a checksum, a digest or a version.
type Source struct {
	// Site is the mirror's URL, or scheme and host of the site.
	Site string `json:"site"`
	// URL is the requested URL at the site or mirror.
	URL string `json:"url"`
	// Redirects are the sites that it redirected to, in order. Paths are not recorded:
	// they may be signed and change all the time.
	Redirects []string `json:"redirects,omitempty"`
}

// Sites lists all sites and mirrors that took part in the answer.
func (s Source) Sites() []string { return append([]string{s.Site}, s.Redirects...) }

// Source returns the source of an answer to a request for u.
func (t *Mirrors) Source(u *url.URL) Source {
	return Source{Site: t.Site(u), URL: t.Real(u).String()}
}

// Real returns the URL that a request for u is sent to.
func (t *Mirrors) Real(u *url.URL) *url.URL {
	if r := t.find(u.Host); r != nil {
		return r.rewrite(u)
	}
	return u
}

// Site returns the URL of the mirror for u, or scheme and host of u.
func (t *Mirrors) Site(u *url.URL) string {
	if r := t.find(u.Host); r != nil {
		return r.URL.String()
	}
	return u.Scheme + "://" + u.Host
}

// MirrorOf lists the hosts that site mirrors, if it is a mirror.
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
	// The answer has the request as it was sent, possibly to a mirror.
	from, to := req.Response.Request.URL, f.mirrors.Real(req.URL)
	if from.Scheme == "https" && to.Scheme != "https" {
		return &RedirectError{Shown(from), Shown(to)}
	}
	last := f.mirrors.Site(via[len(via)-1].URL)
	if site := f.mirrors.Site(req.URL); site != last {
		f.sites = append(f.sites, site)
	}
	return nil
}
