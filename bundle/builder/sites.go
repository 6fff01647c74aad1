package builder

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"airlift/bundle/builder/charts"
	"airlift/images/fetch"
	"airlift/images/registry"
	"airlift/internal/fault"
)

// sites are the clients for download sites and registries, and the cache of their downloads.
type sites struct {
	given    []fetch.Mirror // the values of --mirror
	cache    *fetch.Cache
	mirrors  *fetch.Mirrors
	fetch    *fetch.Client
	registry *registry.Client
	charts   *charts.Client
}

// connect opens the cache and creates the clients. The images are for arch. Layers in have are not
// downloaded. keep also stores compressed layers that no encoder can recreate.
func connect(n Network, arch string, have base, keep bool, r *reporter) (*sites, error) {
	s := &sites{given: n.Mirrors}
	var err error
	if s.cache, err = fetch.OpenCache(n.CacheDir); err != nil {
		return nil, fault.Wrap(err, fault.Failure, "choose another directory with --cache-dir")
	}
	trust, err := fetch.NewTrust(n.CAs)
	if err != nil {
		return nil, err
	}
	if s.mirrors, err = fetch.NewMirrors(trust.Transport(), n.Mirrors); err != nil {
		return nil, err
	}
	s.fetch = fetch.New(s.cache, s.mirrors)
	s.fetch.Refresh = n.Refresh
	if n.RetryWait > 0 {
		s.fetch.RetryWait = n.RetryWait
	}
	s.fetch.Note = func(s string) { r.Printf("  %s\n", s) }
	s.registry = registry.New(s.fetch, s.mirrors, arch)
	s.registry.AuthFile = n.AuthFile
	s.registry.Have, s.registry.HaveCompressed = have.layers, have.compressed
	s.registry.Keep = keep
	s.charts = charts.New(s.mirrors)
	s.charts.AuthFile = n.AuthFile
	r.watchCharts(s.charts)
	return s, nil
}

// mirrored reports whether requests go to a mirror.
func (s *sites) mirrored() bool { return len(s.given) > 0 }

// of returns the site or mirror that serves address.
func (s *sites) of(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return s.mirrors.Site(u)
}

// explain adds a hint to network errors. hosts are the sites that a build needs.
func explain(err error, hosts []string) error {
	var dns *net.DNSError
	var op *net.OpError
	var u *url.Error
	var size *fetch.SizeError
	var redirect *fetch.RedirectError
	if errors.As(err, &size) || errors.As(err, &redirect) {
		return err // the site was reached, so the network is not the problem
	}
	certificate := fetch.CertificateHint(err, "the site", "trust the site's CA with --registry-ca FILE; a proxy that intercepts TLS has a CA of its own")
	if fault.Hint(err) == "" && certificate != "" {
		return fault.Wrap(err, fault.Failure, certificate)
	}
	if status := (*fetch.StatusError)(nil); fault.Hint(err) == "" && errors.As(err, &status) && status.Code == http.StatusTooManyRequests {
		return fault.Wrap(err, fault.Failure, status.Host+" limits requests: wait and run the same command again, or use a mirror: --mirror HOST=URL")
	}
	if fault.Hint(err) != "" || !errors.As(err, &dns) && !errors.As(err, &op) && !errors.As(err, &u) {
		return err
	}
	return fault.Wrap(err, fault.Failure, "allow access to "+strings.Join(hosts, ", ")+
		" and the hosts that they redirect to; use --mirror HOST=URL for a mirror, or HTTPS_PROXY for a proxy")
}
