package charts

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"airlift/builder/lock"
	"airlift/internal/fault"
)

func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	u.User = nil
	return u.String()
}

// Pin makes the client get exactly these archives, without asking for versions.
func (c *Client) Pin(list []lock.Chart) {
	c.pins = map[lock.Chart]lock.Chart{}
	for _, d := range list {
		c.pins[lock.Chart{Source: d.Source, Name: d.Name, Wanted: d.Wanted}] = d
	}
}

// Downloads lists the charts that were downloaded, sorted.
func (c *Client) Downloads() []lock.Chart {
	list := slices.Clone(c.downloads)
	slices.SortFunc(list, func(x, y lock.Chart) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Wanted, y.Wanted))
	})
	return list
}

// pinned downloads the archive of a pin: a registry's by its digest, a repository's from its
// URL.
func (c *Client) pinned(ctx context.Context, repository string, pin lock.Chart) (a archive, err error) {
	a.Version, a.URL = pin.Version, pin.URL
	if ref, ok := strings.CutPrefix(pin.URL, ociScheme); ok {
		tag, err := name.NewTag(ref)
		if err != nil {
			return a, fault.Wrap(err, fault.Usage, "resolve everything again with bundle update")
		}
		if a.Content, err = c.registry().Blob(ctx, tag.Repository, pin.Digest, maxArchive); err != nil {
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
	a.URL = withoutUser(at.String())
	if a.Content, err = c.get(ctx, at, base, maxArchive); err != nil {
		return a, fmt.Errorf("downloading chart %q %s: %w", pin.Name, pin.Version, err)
	}
	if got := digestOf(a.Content); got != pin.Digest {
		return a, fault.New(fault.Failure, "chart %q %s from %s has digest %s, but %s is pinned", pin.Name, pin.Version, a.URL, got, pin.Digest).
			Hint("ask the publisher of the chart; if the change is intended, accept it with bundle update")
	}
	return a, nil
}
