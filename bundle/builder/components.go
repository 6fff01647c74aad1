package builder

import (
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/builder/lock"
	"airlift/images/fetch"
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
func label(bin *binary) string { return bin.Name + " " + bin.Version }

// components are the published files that the bundle has, and the optional ones that it does not have.
type components struct {
	binaries []*binary
	leftOut  []LeftOut
}

// A choice decides which optional components the bundle has.
type choice struct {
	require, without []string
	lock             *lock.Lock
	lockPath         string
	report           *reporter
}

// check checks --require and --without.
func (c choice) check() error {
	known := release.Optional()
	for flag, names := range map[string][]string{"--require": c.require, "--without": c.without} {
		for _, name := range names {
			if !slices.Contains(known, name) {
				return fault.New(fault.Usage, "%s %q: no such optional component", flag, name).Hint("optional components: " + strings.Join(known, ", "))
			}
		}
	}
	for _, name := range c.require {
		if slices.Contains(c.without, name) {
			return fault.New(fault.Usage, "--require and --without both name %q", name).Hint("use only one of the two flags")
		}
	}
	return nil
}

// of takes the binaries of the catalog that the user and the lock did not exclude.
func (c choice) of(catalog *release.Catalog) (chosen components) {
	for _, b := range catalog.Binaries {
		if slices.Contains(c.without, b.Name) {
			c.leaveOut(&chosen, b, "--without "+b.Name)
		} else if c.lock != nil && c.lock.Absent(b.URL) && !slices.Contains(c.require, b.Name) {
			c.leaveOut(&chosen, b, "as in "+c.lockPath)
		} else {
			chosen.binaries = append(chosen.binaries, &binary{Binary: b})
		}
	}
	return chosen
}

// mayLeaveOut reports whether a binary is optional and the user did not require it.
func (c choice) mayLeaveOut(bin *binary) bool {
	return bin.Optional && !bin.pinned && c.lock == nil && !slices.Contains(c.require, bin.Name)
}

func (c choice) leaveOut(from *components, b release.Binary, why string) {
	from.leftOut = append(from.leftOut, LeftOut{b.Name, b.Version, b.URL, why})
	c.report.Printf("  %s %s: left out; it is optional (%s)\n", b.Name, b.Version, why)
}

// dropMissing leaves out the missing components that are optional, and removes them from the shortage.
func (c choice) dropMissing(from *components, s *shortage) {
	s.items = slices.DeleteFunc(s.items, func(l lack) bool {
		bin, ok := l.of.(*binary)
		if !ok || !c.mayLeaveOut(bin) || !fetch.NotThere(l.why) {
			return false
		}
		from.binaries = slices.DeleteFunc(from.binaries, func(b *binary) bool { return b == bin })
		c.leaveOut(from, bin.Binary, l.why.Error())
		return true
	})
}
