package build

import (
	"archive/tar"
	"bufio"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"airlift/bundle"
	"airlift/bundle/fetch"
	"airlift/images"
)

// A piece is a payload entry whose content is in the cache under its sha256.
type piece = bundle.Entry

func total(pieces []piece) int64 {
	var sum int64
	for _, p := range pieces {
		sum += p.Size
	}
	return sum
}

// A memory is what the cache remembers of a published file once it was
// downloaded and verified: its checksum, and the source of that.
type memory struct {
	SHA256 string       `json:"sha256"`
	Source fetch.Source `json:"source"`
}

func memoryKey(bin *binary) string { return "checksum of " + bin.URL + " at " + bin.ChecksumURL }

// recall returns what the site published about a binary in an earlier build.
func (b *builder) recall(bin *binary) (m memory, ok bool) {
	text, ok := b.fetch.Recall(memoryKey(bin))
	return m, ok && json.Unmarshal([]byte(text), &m) == nil
}

// piecesKey is the cache's key for the contents of a file with that sha256, from
// any source.
func piecesKey(bin *binary, sum string) (string, error) {
	wanted, err := json.Marshal(bin.Contents)
	return "pieces of sha256:" + sum + " for " + string(wanted), err
}

// cachedPieces returns what a binary with that sha256 holds, if the cache has
// all of it.
func (b *builder) cachedPieces(ctx context.Context, bin *binary, sum string) (pieces []piece, err error) {
	key, err := piecesKey(bin, sum)
	if err != nil {
		return nil, err
	}
	text, ok := b.cache.Recall(key)
	if !ok || json.Unmarshal([]byte(text), &pieces) != nil {
		return nil, nil
	}
	for _, p := range pieces {
		if _, ok, err := b.cache.Has(ctx, p.SHA256); !ok || err != nil {
			return nil, err
		}
	}
	return pieces, nil
}

// remember keeps what was learned of a binary that is in the cache.
func (b *builder) remember(bin *binary) error {
	key, err := piecesKey(bin, bin.sum)
	if err != nil {
		return err
	}
	text, err := json.Marshal(bin.pieces)
	if err != nil {
		return err
	}
	if err := b.cache.Remember(key, string(text)); err != nil || bin.pinned {
		return err
	}
	if text, err = json.Marshal(memory{bin.sum, bin.source}); err != nil {
		return err
	}
	return b.fetch.Remember(memoryKey(bin), string(text))
}

// fetchPieces downloads a published file and takes it apart.
func (b *builder) fetchPieces(ctx context.Context, d fetch.Download, c images.Contents) ([]piece, error) {
	if c.Entry != "" {
		size, err := b.fetch.Get(ctx, d)
		return []piece{{Name: c.Entry, Size: size, SHA256: d.SHA256}}, err
	}
	var pieces []piece
	never := func() (bool, error) { return false, nil }
	err := b.fetch.Unpack(ctx, d, never, func(f fetch.Verified) (err error) {
		if pieces, err = b.untar(ctx, f, d.URL, c); err != nil {
			return fmt.Errorf("unpacking %s: %w", d.URL, err)
		}
		return nil
	})
	return pieces, err
}

// maxPieces bounds what is taken out of one archive; the largest has twenty files.
const maxPieces = 256

// untar puts the wanted files of a .tar.gz into the cache.
func (b *builder) untar(ctx context.Context, f fetch.Verified, url string, c images.Contents) ([]piece, error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var pieces []piece
	for t := tar.NewReader(fetch.LimitUnpacked(z, "the unpacked "+path.Base(url), f.Size)); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		content := bufio.NewReader(t)
		entry := wants(c, h, content)
		if entry == "" {
			continue
		}
		if len(pieces) == maxPieces {
			return nil, fmt.Errorf("it has more than %d binaries", maxPieces)
		}
		sum, size, err := b.cache.Put(ctx, content, "")
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, piece{Name: entry, Size: size, SHA256: sum})
	}
	return inOrder(c, pieces)
}

// wants returns the entry that a file of an archive becomes, or "".
func wants(c images.Contents, h *tar.Header, content *bufio.Reader) string {
	name := path.Clean(h.Name)
	if h.Typeflag != tar.TypeReg {
		return ""
	}
	for _, m := range c.Members {
		if m.Name == name {
			return m.Entry
		}
	}
	// Next to the programs, archives have licences and readmes, some of
	// them marked as executable.
	if magic, _ := content.Peek(4); c.Folder != "" && string(magic) == elf.ELFMAG && !strings.Contains(name, "/") {
		return c.Folder + name
	}
	return ""
}

// inOrder sorts the pieces as the catalog wants them and makes sure that none
// is missing or there twice.
func inOrder(c images.Contents, pieces []piece) ([]piece, error) {
	place := func(p piece) int {
		return slices.IndexFunc(c.Members, func(m images.Member) bool { return m.Entry == p.Name })
	}
	slices.SortFunc(pieces, func(x, y piece) int {
		if d := place(x) - place(y); d != 0 {
			return d
		}
		return strings.Compare(x.Name, y.Name)
	})
	for n := 1; n < len(pieces); n++ {
		if pieces[n].Name == pieces[n-1].Name {
			return nil, fmt.Errorf("%s is there twice", pieces[n].Name)
		}
	}
	for _, m := range c.Members {
		if !slices.ContainsFunc(pieces, func(p piece) bool { return p.Name == m.Entry }) {
			return nil, fmt.Errorf("%s is not in it", m.Name)
		}
	}
	if len(pieces) == 0 {
		return nil, fmt.Errorf("there is no program in it")
	}
	return pieces, nil
}
