package builder

import (
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"airlift/builder/charts"
	"airlift/builder/events"
	"airlift/builder/fetch"
	"airlift/builder/lock"
	"airlift/builder/registry"
	"airlift/images/release"
	"airlift/internal/fault"
)

// connect opens the cache and creates the clients for download sites and registries.
func (b *build) connect() error {
	if b.Lock != nil && b.Refresh {
		return fault.New(fault.Usage, "--refresh requests nothing again, because %s pins everything", b.LockPath).Hint("resolve everything again with " + updateCommand)
	}
	var err error
	if b.cache, err = fetch.OpenCache(b.CacheDir); err != nil {
		return fault.Wrap(err, fault.Failure, "choose another directory with --cache-dir")
	}
	trust, err := fetch.NewTrust(b.CAs)
	if err != nil {
		return err
	}
	if b.mirrors, err = fetch.NewMirrors(trust.Transport(), b.Mirrors); err != nil {
		return err
	}
	b.fetch = fetch.New(b.cache, b.mirrors)
	b.fetch.Refresh = b.Refresh
	if b.RetryWait > 0 {
		b.fetch.RetryWait = b.RetryWait
	}
	b.fetch.Note = func(s string) { b.Report.Printf("  %s\n", s) }
	b.registry = registry.New(b.fetch, b.mirrors, b.Arch)
	b.registry.AuthFile, b.registry.Keep = b.AuthFile, b.KeepCompressed
	b.registry.Have, b.registry.HaveCompressed = b.base.layers, b.base.compressed
	b.charts = charts.New(b.mirrors)
	b.charts.AuthFile = b.AuthFile
	b.charts.Started = func(c lock.Chart) {
		b.Report.Send(events.EventDownloadStarted, &events.DownloadStarted{Kind: events.Chart, Name: chartName(c), Source: c.Source})
	}
	b.charts.Finished = func(c lock.Chart, size int64) {
		b.Report.Send(events.EventDownloadFinished, &events.DownloadFinished{Kind: events.Chart, Name: chartName(c), Source: c.Source, From: events.Network, Size: size, Digest: c.Digest})
	}
	if b.Lock != nil {
		b.charts.Pin(b.Lock.Charts)
	}
	return nil
}

// chartName names a chart in events, before its version is known: "ingress-nginx 4.13.2".
func chartName(c lock.Chart) string { return cmp.Or(c.Name, c.Source) + " " + c.Wanted }

// present reports content that does not have to be downloaded.
func (b *build) present(kind, name, source, from string, size int64, digest, note string) {
	b.Report.Work(name, size).Done(note, events.DownloadFinished{Kind: kind, Name: name, Source: source, From: from, Size: size, Digest: digest})
}

// transfer begins the download of kind. size is 0 if it is not known yet.
func (b *build) transfer(kind, name, source string, size int64) *events.Work {
	return b.Report.Download(events.DownloadStarted{Kind: kind, Name: name, Source: source, Size: size}, &b.fetched)
}

// siteOf returns the site or mirror that serves address.
func (b *build) siteOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return b.mirrors.Site(u)
}

// A store keeps facts for later builds.
type store interface {
	Recall(key string) (string, bool)
	Remember(key, value string) error
}

func recall(from store, key string, into any) bool {
	text, ok := from.Recall(key)
	return ok && json.Unmarshal([]byte(text), into) == nil
}

func remember(in store, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return in.Remember(key, string(text))
}

// hosts lists the sites that the build needs.
func (b *build) hosts() []string {
	if !b.additional() {
		hosts := []string{"dl.k8s.io", "github.com", "registry.k8s.io"}
		if b.CNI == release.Flannel {
			hosts = append(hosts, "ghcr.io")
		}
		return hosts
	}
	hosts := []string{"dl.k8s.io"} // for the newest version
	for _, reference := range b.named {
		host, _, _ := strings.Cut(reference, "/")
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// explain adds a hint to network errors.
func (b *build) explain(err error) error {
	var dns *net.DNSError
	var op *net.OpError
	var u *url.Error
	var size *fetch.SizeError
	var redirect *fetch.RedirectError
	var status *fetch.StatusError
	if fault.Hint(err) != "" || errors.As(err, &size) || errors.As(err, &redirect) {
		return err // it has a hint, or the site was reached, so the network is not the problem
	}
	hint := fetch.CertificateHint(err, "the site", "trust the site's CA with --registry-ca FILE; a proxy that intercepts TLS has a CA of its own")
	switch {
	case hint != "":
	case errors.As(err, &status) && status.Code == http.StatusTooManyRequests:
		hint = status.Host + " limits requests: wait and run the same command again, or use a mirror: --mirror HOST=URL"
	case errors.As(err, &dns), errors.As(err, &op), errors.As(err, &u):
		hint = "allow access to " + strings.Join(b.hosts(), ", ") +
			" and the hosts that they redirect to; use --mirror HOST=URL for a mirror, or HTTPS_PROXY for a proxy"
	default:
		return err
	}
	return fault.Wrap(err, fault.Failure, hint)
}
