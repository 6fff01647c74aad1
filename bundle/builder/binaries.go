package builder

import (
	"context"
	"encoding/json"
	"fmt"

	"airlift/bundle"
	"airlift/bundle/builder/events"
	"airlift/images/fetch"
)

// A binaryFetcher finds the checksums of binaries, and puts their contents into the cache.
type binaryFetcher struct {
	sites    *sites
	report   *reporter
	refresh  bool
	lockPath string
}

// resolve finds a binary's checksum: from the user or the lock, from the cache if all of its
// contents are there (releases do not change), or else from its site.
func (f binaryFetcher) resolve(ctx context.Context, bin *binary) (err error) {
	if bin.pinned || bin.locked {
		bin.entries, err = f.cached(ctx, bin, bin.sum)
		return err
	}
	if known, ok := f.recall(bin); ok && !f.refresh {
		bin.sum, bin.source = known.SHA256, known.Source
		if bin.entries, err = f.cached(ctx, bin, bin.sum); err != nil || bin.entries != nil {
			return err
		}
	}
	if bin.sum, bin.source, err = f.sites.fetch.Checksum(ctx, bin.ChecksumURL, bin.URL); err != nil {
		return fmt.Errorf("finding the checksum of %s: %w", label(bin), err)
	}
	if bin.entries, err = f.cached(ctx, bin, bin.sum); err != nil || bin.entries == nil {
		return err
	}
	return f.remember(bin) // also for this source
}

// get puts one published file, or its wanted contents, into the cache.
func (f binaryFetcher) get(ctx context.Context, bin *binary) error {
	if bin.entries != nil {
		f.report.present(events.Component, label(bin), f.sites.of(bin.URL), events.Cache, total(bin.entries), "sha256:"+bin.sum, "in the cache")
		return nil
	}
	item := f.report.transfer(events.Component, label(bin), f.sites.of(bin.URL), 0)
	d := fetch.Download{Name: label(bin), URL: bin.URL, SHA256: bin.sum, Vouched: "published at " + bin.source.URL, Meter: item}
	if bin.pinned {
		d.Vouched = "pinned by --checksum"
	} else if bin.locked {
		d.Vouched = "pinned by " + f.lockPath
	}
	var err error
	if bin.entries, err = fetchEntries(ctx, f.sites.fetch, d, bin.Contents); err != nil {
		item.Failed()
		return err
	}
	item.Done("sha256:"+bin.sum, "downloaded, sha256 verified")
	return f.remember(bin)
}

// A memory is what the cache knows about a published file that was downloaded and
// verified before.
type memory struct {
	SHA256 string       `json:"sha256"`
	Source fetch.Source `json:"source"`
}

func memoryKey(bin *binary) string { return "checksum of " + bin.URL + " at " + bin.ChecksumURL }

// recall returns the checksum that an earlier build found for a binary.
func (f binaryFetcher) recall(bin *binary) (m memory, ok bool) {
	text, ok := f.sites.fetch.Recall(memoryKey(bin))
	return m, ok && json.Unmarshal([]byte(text), &m) == nil
}

// entriesKey is the cache's key for the contents of a file with this sha256. It does
// not depend on the source.
func entriesKey(bin *binary, sum string) (string, error) {
	wanted, err := json.Marshal(bin.Contents)
	return "pieces of sha256:" + sum + " for " + string(wanted), err
}

// cached returns the contents of a binary with this sha256, if all of them are in the
// cache.
func (f binaryFetcher) cached(ctx context.Context, bin *binary, sum string) (entries []bundle.Entry, err error) {
	key, err := entriesKey(bin, sum)
	if err != nil {
		return nil, err
	}
	text, ok := f.sites.cache.Recall(key)
	if !ok || json.Unmarshal([]byte(text), &entries) != nil {
		return nil, nil
	}
	for _, e := range entries {
		if _, ok, err := f.sites.cache.Has(ctx, e.SHA256); !ok || err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// remember stores the checksum and the contents of a binary that is in the cache.
func (f binaryFetcher) remember(bin *binary) error {
	key, err := entriesKey(bin, bin.sum)
	if err != nil {
		return err
	}
	text, err := json.Marshal(bin.entries)
	if err != nil {
		return err
	}
	if err := f.sites.cache.Remember(key, string(text)); err != nil || bin.pinned || bin.locked {
		return err
	}
	if text, err = json.Marshal(memory{bin.sum, bin.source}); err != nil {
		return err
	}
	return f.sites.fetch.Remember(memoryKey(bin), string(text))
}
