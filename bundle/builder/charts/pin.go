package charts

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"airlift/internal/fault"
)

// A Download is a chart of a repository or a registry.
type Download struct {
	Source string // URL of the repository without credentials, or oci://REGISTRY/REPOSITORY
	Name   string // in a repository
	Wanted string // version, or range of versions
	// Version, URL and Digest of the chart's archive.
	Version, URL, Digest string
}

// wanted is the Download before it is known what Wanted resolves to.
func wanted(repository, chart, version string) Download {
	if repository == "" {
		return Download{Source: chart, Wanted: version}
	}
	return Download{Source: withoutUser(repository), Name: chart, Wanted: version}
}

func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	u.User = nil
	return u.String()
}

// Pin makes the client get exactly these archives, without asking for versions.
func (c *Client) Pin(list []Download) {
	c.pins = map[Download]Download{}
	for _, d := range list {
		c.pins[Download{Source: d.Source, Name: d.Name, Wanted: d.Wanted}] = d
	}
}

// Downloads lists the charts that were downloaded, sorted.
func (c *Client) Downloads() []Download {
	list := slices.Clone(c.downloads)
	slices.SortFunc(list, func(x, y Download) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Wanted, y.Wanted))
	})
	return list
}

func (c *Client) note(d Download, a archive) {
	d.Version, d.URL, d.Digest = a.version, withoutUser(a.from), digestOf(a.content)
	c.downloads = append(c.downloads, d)
	if c.Finished != nil {
		c.Finished(d, int64(len(a.content)))
	}
}

// pinned downloads the archive of a pin: a registry's by its digest, a repository's from its
// URL.
func (c *Client) pinned(ctx context.Context, repository string, pin Download) (a archive, err error) {
	a.version, a.from = pin.Version, pin.URL
	if ref, ok := strings.CutPrefix(pin.URL, ociScheme); ok {
		tag, err := name.NewTag(ref)
		if err != nil {
			return a, fault.Wrap(err, fault.Usage, "resolve everything again with bundle update")
		}
		if a.content, err = c.registry().Blob(ctx, tag.Repository, pin.Digest, maxArchive); err != nil {
			return a, notThere(fmt.Errorf("pulling chart %s with the pinned digest %s: %w", pin.URL, pin.Digest, err),
				"the registry no longer has this archive; choose another one with bundle update")
		}
		return a, nil
	}
	base, err := url.Parse(repository)
	if err != nil {
		return a, err
	}
	at, err := url.Parse(pin.URL)
	if err != nil {
		return a, err
	}
	if at.Host == base.Host {
		at.User = base.User
	}
	a.from = withoutUser(at.String())
	if a.content, err = c.get(ctx, at, base, maxArchive); err != nil {
		return a, fmt.Errorf("downloading chart %q %s: %w", pin.Name, pin.Version, err)
	}
	if got := digestOf(a.content); got != pin.Digest {
		return a, fault.New(fault.Failure, "chart %q %s from %s has digest %s, but %s is pinned", pin.Name, pin.Version, a.from, got, pin.Digest).
			Hint("ask the publisher of the chart; if the change is intended, accept it with bundle update")
	}
	return a, nil
}
