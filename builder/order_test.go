package builder

import (
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
)

// Both orders have all entries exactly once.
func TestOrders(t *testing.T) {
	boot, small := slices.Sorted(slices.Values(bootOrder)), slices.Sorted(slices.Values(smallOrder))
	if !slices.Equal(boot, small) || len(slices.Compact(boot)) != len(bootOrder) {
		t.Errorf("%q\n%q", boot, small)
	}
}

// At the level Best, binaries and blobs alternate. The site's small entries precede the first
// blob there as well.
func TestSiteOrder(t *testing.T) {
	entries := func(names string) (list []bundle.Entry) {
		for name := range strings.FieldsSeq(names) {
			list = append(list, bundle.Entry{Name: name})
		}
		return list
	}
	for all, want := range map[string]string{
		"bin/a cni/b blobs/sha256/c blobs/sha256/d": "bin/a cni/b manifests/x files/y blobs/sha256/c blobs/sha256/d files/z",
		"bin/a blobs/sha256/c bin/b":                "bin/a manifests/x files/y blobs/sha256/c bin/b files/z",
		"bin/a":                                     "bin/a manifests/x files/y files/z",
	} {
		s := siteContent{early: entries("manifests/x files/y"), late: entries("files/z")}
		m := bundle.Manifest{Entries: entries(all)}
		s.describe(&m, nil)
		if !slices.Equal(m.Entries, entries(want)) || m.Units != nil {
			t.Errorf("%+v, want %s", m, want)
		}
	}
}
