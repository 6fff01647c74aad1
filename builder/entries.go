package builder

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/images/release"
)

func total(entries []bundle.Entry) int64 {
	var sum int64
	for _, e := range entries {
		sum += e.Size
	}
	return sum
}

// fetchEntries downloads a published file and unpacks it.
func fetchEntries(ctx context.Context, from *fetch.Client, d fetch.Download, c release.Contents) ([]bundle.Entry, error) {
	if c.Entry != "" {
		size, err := from.Get(ctx, d)
		return []bundle.Entry{{Name: c.Entry, Size: size, SHA256: d.SHA256}}, err
	}
	var entries []bundle.Entry
	never := func() (bool, error) { return false, nil }
	err := from.Unpack(ctx, d, never, func(f fetch.Verified) (err error) {
		if entries, err = untar(ctx, from.Cache, f, d.URL, c); err != nil {
			return fmt.Errorf("unpacking %s: %w", d.URL, err)
		}
		return nil
	})
	return entries, err
}

// maxMembers limits the number of files from one archive; the largest has twenty.
const maxMembers = 256

// untar puts the wanted files of a .tar.gz into the cache.
func untar(ctx context.Context, cache *fetch.Cache, f fetch.Verified, url string, c release.Contents) ([]bundle.Entry, error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var entries []bundle.Entry
	for t := tar.NewReader(fetch.LimitUnpacked(z, "the unpacked "+path.Base(url), f.Size)); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		content := bufio.NewReader(t)
		entry, err := wants(c, h, content)
		if err != nil {
			return nil, err
		}
		if entry == "" {
			continue
		}
		if len(entries) == maxMembers {
			return nil, fmt.Errorf("the archive has more than %d binaries", maxMembers)
		}
		sum, size, err := cache.Put(ctx, content, "")
		if err != nil {
			return nil, err
		}
		entries = append(entries, bundle.Entry{Name: entry, Size: size, SHA256: sum})
	}
	return inOrder(c, entries)
}

// wants returns the name of the entry for a file of an archive, or "" if the file is
// not wanted.
func wants(c release.Contents, h *tar.Header, content *bufio.Reader) (string, error) {
	name := path.Clean(h.Name)
	if h.Typeflag != tar.TypeReg {
		return "", nil
	}
	for _, m := range c.Members {
		if m.Name == name {
			return m.Entry, nil
		}
	}
	if c.Dir == "" || strings.Contains(name, "/") {
		return "", nil
	}
	// Archives also have licences and readmes, some of them marked as
	// executable.
	magic, err := content.Peek(len(elf.ELFMAG))
	switch {
	case err != nil && err != io.EOF:
		return "", err
	case string(magic) == elf.ELFMAG:
		return c.Dir + name, nil
	}
	return "", nil
}

// inOrder sorts the entries as in the catalog and checks that each is there exactly
// once.
func inOrder(c release.Contents, entries []bundle.Entry) ([]bundle.Entry, error) {
	place := map[string]int{}
	for n, m := range c.Members {
		place[m.Entry] = n + 1 // after all others
	}
	slices.SortFunc(entries, func(x, y bundle.Entry) int {
		return cmp.Or(place[x.Name]-place[y.Name], strings.Compare(x.Name, y.Name))
	})
	for n, e := range entries {
		if n > 0 && e.Name == entries[n-1].Name {
			return nil, fmt.Errorf("the archive has %s twice", e.Name)
		}
		delete(place, e.Name)
	}
	for _, m := range c.Members {
		if _, missing := place[m.Entry]; missing {
			return nil, fmt.Errorf("%s is not in the archive", m.Name)
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("the archive has no binaries")
	}
	return entries, nil
}
