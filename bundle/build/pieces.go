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
// downloaded and verified.
type memory struct {
	SHA256 string  `json:"sha256"` // of the file as published
	Pieces []piece `json:"pieces"`
}

func memoryKey(bin *binary) (string, error) {
	wanted, err := json.Marshal(bin.Contents)
	return "pieces of " + bin.URL + " for " + string(wanted), err
}

// recall returns what is remembered of a published file, as far as the cache
// still has all of its pieces.
func (b *builder) recall(ctx context.Context, bin *binary) (m memory, err error) {
	key, err := memoryKey(bin)
	if err != nil {
		return memory{}, err
	}
	text, ok := b.cache.Recall(key)
	if !ok || json.Unmarshal([]byte(text), &m) != nil {
		return memory{}, nil
	}
	for _, p := range m.Pieces {
		if _, ok, err := b.cache.Has(ctx, p.SHA256); !ok || err != nil {
			return memory{}, err
		}
	}
	return m, nil
}

func (b *builder) remember(bin *binary) error {
	key, err := memoryKey(bin)
	if err != nil {
		return err
	}
	text, err := json.Marshal(memory{bin.sum, bin.pieces})
	if err != nil {
		return err
	}
	return b.cache.Remember(key, string(text))
}

// fetchPieces downloads a published file and takes it apart.
func (b *builder) fetchPieces(ctx context.Context, d fetch.Download, c images.Contents) ([]piece, error) {
	if c.Entry != "" {
		size, err := b.fetch.Get(ctx, d)
		return []piece{{Name: c.Entry, Size: size, SHA256: d.SHA256}}, err
	}
	var pieces []piece
	never := func() (bool, error) { return false, nil }
	err := b.fetch.Unpack(ctx, d, never, func(r io.Reader) (err error) {
		if pieces, err = b.untar(ctx, r, c); err != nil {
			return fmt.Errorf("unpacking %s: %w", d.URL, err)
		}
		return nil
	})
	return pieces, err
}

// untar puts the wanted files of a .tar.gz into the cache.
func (b *builder) untar(ctx context.Context, r io.Reader, c images.Contents) ([]piece, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	var pieces []piece
	for t := tar.NewReader(z); ; {
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
