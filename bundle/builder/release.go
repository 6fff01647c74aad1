package builder

import (
	"context"
	"fmt"
	"strings"

	"airlift/images/fetch"
	"airlift/images/release"
	"airlift/internal/fault"
)

// A foundRelease is the Kubernetes release that a bundle is for.
type foundRelease struct {
	*release.Catalog
	source fetch.Source // of the newest version, if it was requested
}

// A releaseFinder finds the release that a target names.
type releaseFinder struct {
	Target
	trust  Trust
	fetch  *fetch.Client
	report *reporter
}

// find returns the release that Version names: "v1.29.15", or "v1.29" for its newest release.
func (f releaseFinder) find(ctx context.Context) (r foundRelease, err error) {
	version, channel, err := f.channel()
	if err != nil {
		return r, err
	}
	if channel != "" && f.trust.Lock != nil {
		if version, err = f.trust.lockedVersion(f.Target); err == nil {
			r.Catalog, err = f.catalogOf(version)
		}
		return r, err
	}
	if channel != "" {
		if version, r.source, err = f.newest(ctx, channel); err != nil {
			return r, err
		}
	}
	if r.Catalog, err = f.catalogOf(version); channel == "" {
		return r, err
	}
	if err != nil {
		return r, fmt.Errorf("reading %s: %w", channel, err)
	}
	f.report.Printf("newest release of %s: %s\n", f.Version, version)
	return r, f.fetch.Remember("newest in "+channel, version)
}

// newest returns the version that a channel names.
func (f releaseFinder) newest(ctx context.Context, channel string) (string, fetch.Source, error) {
	text, source, err := f.fetch.Text(ctx, channel)
	if err != nil {
		hint := "give a full version, for example --version " + release.NewestOf(f.Version)
		if last, ok := f.fetch.Recall("newest in " + channel); ok {
			hint = fmt.Sprintf("give a full version; the last known release is --version %s", last)
		}
		return "", source, fault.Wrap(fmt.Errorf("finding the newest release of %s: %w", f.Version, err), fault.Failure, hint)
	}
	return strings.TrimSpace(text), source, nil
}
