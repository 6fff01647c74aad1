package builder

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"airlift/builder/events"
	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
)

// A binary is a published file with binaries for the bundle.
type binary struct {
	release.Binary
	sum     string         // the sha256 of the file
	pinned  bool           // sum is from --checksum or --checksums
	locked  bool           // sum is from the lock
	source  fetch.Source   // of the sum, if it is neither pinned nor locked
	entries []bundle.Entry // its entries in the bundle; nil until they are in the cache
	signed  signed
}

// label is the name of a binary in messages.
func (bin *binary) label() string { return bin.Name + " " + bin.Version }

// checkOptional checks --require and --without.
func (b *build) checkOptional() error {
	known := release.Optional()
	for flag, names := range map[string][]string{"--require": b.Require, "--without": b.Without} {
		for _, name := range names {
			if !slices.Contains(known, name) {
				return fault.New(fault.Usage, "%s %q: no such optional component", flag, name).Hint("optional components: " + strings.Join(known, ", "))
			}
		}
	}
	for _, name := range b.Require {
		if slices.Contains(b.Without, name) {
			return fault.New(fault.Usage, "--require and --without both name %q", name).Hint("use only one of the two flags")
		}
	}
	return nil
}

// chooseBinaries takes the binaries of the catalog that the user and the lock did not exclude.
func (b *build) chooseBinaries() {
	for _, bin := range b.release.Binaries {
		if slices.Contains(b.Without, bin.Name) {
			b.leaveOut(bin, "--without "+bin.Name)
		} else if b.Lock != nil && b.Lock.Absent(bin.URL) && !slices.Contains(b.Require, bin.Name) {
			b.leaveOut(bin, "as in "+b.LockPath)
		} else {
			b.binaries = append(b.binaries, &binary{Binary: bin})
		}
	}
}

func (b *build) leaveOut(bin release.Binary, why string) {
	b.leftOut = append(b.leftOut, LeftOut{bin.Name, bin.Version, bin.URL, why})
	b.Report.Printf("  %s %s: left out; it is optional (%s)\n", bin.Name, bin.Version, why)
}

// settle leaves out the missing components that are optional and that the user did not require, and
// returns an error with all others.
func (b *build) settle(missing *shortage) error {
	missing.items = slices.DeleteFunc(missing.items, func(l lack) bool {
		bin := l.binary
		if bin == nil || !bin.Optional || bin.pinned || b.Lock != nil || slices.Contains(b.Require, bin.Name) || !fetch.NotThere(l.why) {
			return false
		}
		b.binaries = slices.DeleteFunc(b.binaries, func(other *binary) bool { return other == bin })
		b.leaveOut(bin.Binary, l.why.Error())
		return true
	})
	return b.shortageError(missing.items)
}

// resolveBinary finds a binary's checksum: from the user or the lock, from the cache if all of its
// contents are there (releases do not change), or else from its site.
func (b *build) resolveBinary(ctx context.Context, bin *binary) (err error) {
	if bin.pinned || bin.locked {
		return b.findCached(ctx, bin)
	}
	var known memory
	if recall(b.fetch, bin.memoryKey(), &known) && !b.Refresh {
		bin.sum, bin.source = known.SHA256, known.Source
		if err := b.findCached(ctx, bin); err != nil || bin.entries != nil {
			return err
		}
	}
	if bin.sum, bin.source, err = b.fetch.Checksum(ctx, bin.ChecksumURL, bin.URL); err != nil {
		return fmt.Errorf("finding the checksum of %s: %w", bin.label(), err)
	}
	if err := b.findCached(ctx, bin); err != nil || bin.entries == nil {
		return err
	}
	return b.rememberBinary(bin) // also for this source
}

// getBinary puts one published file, or its wanted contents, into the cache.
func (b *build) getBinary(ctx context.Context, bin *binary) (err error) {
	if bin.entries != nil {
		b.present(events.Component, bin.label(), b.siteOf(bin.URL), events.Cache, total(bin.entries), "sha256:"+bin.sum, "in the cache")
		return nil
	}
	item := b.transfer(events.Component, bin.label(), b.siteOf(bin.URL), 0)
	d := fetch.Download{Name: bin.label(), URL: bin.URL, SHA256: bin.sum, Vouched: "published at " + bin.source.URL, Meter: item}
	if bin.pinned {
		d.Vouched = "pinned by --checksum"
	} else if bin.locked {
		d.Vouched = "pinned by " + b.LockPath
	}
	if bin.entries, err = fetchEntries(ctx, b.fetch, d, bin.Contents); err != nil {
		item.Failed()
		return err
	}
	item.Downloaded("sha256:"+bin.sum, "downloaded, sha256 verified")
	return b.rememberBinary(bin)
}

// A memory is what the cache knows about a published file that was downloaded and
// verified before.
type memory struct {
	SHA256 string       `json:"sha256"`
	Source fetch.Source `json:"source"`
}

func (bin *binary) memoryKey() string { return "checksum of " + bin.URL + " at " + bin.ChecksumURL }

// entriesKey is the cache's key for the contents of the file. It does not depend on the source.
func (bin *binary) entriesKey() string {
	wanted, _ := json.Marshal(bin.Contents) // strings only
	return "pieces of sha256:" + bin.sum + " for " + string(wanted)
}

// findCached sets the entries of a binary if all of them are in the cache.
func (b *build) findCached(ctx context.Context, bin *binary) error {
	var entries []bundle.Entry
	if !recall(b.cache, bin.entriesKey(), &entries) {
		return nil
	}
	for _, e := range entries {
		if _, ok, err := b.cache.Has(ctx, e.SHA256); !ok || err != nil {
			return err
		}
	}
	bin.entries = entries
	return nil
}

// rememberBinary stores the checksum and the contents of a binary that is in the cache.
func (b *build) rememberBinary(bin *binary) error {
	if err := remember(b.cache, bin.entriesKey(), bin.entries); err != nil || bin.pinned || bin.locked {
		return err
	}
	return remember(b.fetch, bin.memoryKey(), memory{bin.sum, bin.source})
}
