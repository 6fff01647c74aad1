package fetch

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
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

// keepTLS returns the answer to a request that was sent to from, or an error if the answer
// redirects from https to http. A redirect to https may be sent to a plain mirror: the user chose it.
func (t *Mirrors) keepTLS(from *url.URL, resp *http.Response, err error) (*http.Response, error) {
	if err != nil || !isRedirect(resp.StatusCode) || from.Scheme != "https" {
		return resp, err
	}
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil {
		return resp, nil // net/http reports it
	}
	if real := t.Real(to); to.Scheme != "https" && real.Scheme != "https" {
		resp.Body.Close()
		return nil, &RedirectError{Shown(from), Shown(real)}
	}
	return resp, nil
}

func isRedirect(code int) bool {
	return slices.Contains([]int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}, code)
}

// SameOrigin reports whether two URLs have the same scheme, host and port. Only then may
// credentials for one be sent to the other.
func SameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if u.Port() == "" && u.Scheme == "https" {
		return "443"
	}
	return cmp.Or(u.Port(), "80")
}

type redirects struct {
	mirrors *Mirrors
	sites   []string
}

func (f *redirects) check(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	last := f.mirrors.Site(via[len(via)-1].URL)
	if site := f.mirrors.Site(req.URL); site != last {
		f.sites = append(f.sites, site)
	}
	return nil
}
