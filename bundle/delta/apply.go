package delta

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// Apply writes the new bundle to path. The result has the bytes of the delta's new bundle. On an
// error, path is unchanged.
func (d *File) Apply(ctx context.Context, old *bundle.File, path string, stage Stage) (bundle.Summary, error) {
	draft, err := d.Draft(ctx, old, path, stage)
	if err != nil {
		return bundle.Summary{}, err
	}
	defer draft.Discard()
	return draft.Summary, draft.Replace()
}

// Draft is Apply without the last step: the new bundle has a temporary name. Its sha256 is the one
// in the delta, which proves nothing about a delta from another author. The caller must call
// Discard.
func (d *File) Draft(ctx context.Context, old *bundle.File, path string, stage Stage) (s *bundle.Draft, err error) {
	defer func() { err = space.Explain(filepath.Dir(path), err) }()
	if !d.Old.is(old) {
		is, err := side(old)
		if err != nil {
			return s, err
		}
		return s, fault.New(fault.Usage, "%s needs another older bundle: %v; %s is: %v", d.path, d.Old, old.Path(), is).Hint("use the bundle from which the delta was created")
	}
	before, err := old.Manifest()
	if err != nil {
		return s, err
	}
	contents, err := newSpool(path)
	if err != nil {
		return s, err
	}
	defer contents.close()
	level, err := bundle.ParseLevel(d.Compression)
	if err == nil {
		err = level.Check()
	}
	if err != nil {
		return s, err
	}

	// The manifest comes first: it lists what else is needed.
	if err := unpack(ctx, old, contents, nil, func(string, int64) func(int64) { return func(int64) {} }); err != nil {
		return s, err
	}
	patched := func(name string, limit int64) ([]byte, error) {
		r, err := d.open(name, contents)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		b, err := io.ReadAll(io.LimitReader(r, limit+1))
		if err == nil && int64(len(b)) > limit {
			err = d.damaged("%s has more than %d bytes", name, limit)
		}
		return b, err
	}
	text, err := patched(bundle.ManifestName, maxHeader)
	if err != nil {
		return s, err
	}
	after, err := bundle.DecodeManifest(text)
	if err != nil {
		return s, d.damaged("the new manifest: %w", err)
	}
	has, needed, from := bySHA256(before), map[string]bool{}, map[string]string{}
	for _, e := range after.Entries {
		if c := d.content(e.Name); c != nil {
			needed[c.Reference] = true
		} else if name := has[e.SHA256]; name != "" {
			needed[name], from[e.Name] = true, name
		} else {
			return s, d.damaged("neither the delta nor %s has %s", old.Path(), e.Name)
		}
	}
	if err := space.Check(filepath.Dir(path), "the new bundle, and the contents of the older one", d.New.Size); err != nil {
		return s, err
	}
	all, err := newSpool(path)
	if err != nil {
		return s, err
	}
	defer all.close()
	if err := unpack(ctx, old, all, needed, stage); err != nil {
		return s, err
	}
	var e bundle.Executables
	if e.Launcher, err = patched(launcherName, maxExecutable); err != nil {
		return s, err
	}
	if e.Installer, err = patched(bundle.InstallerName, maxExecutable); err != nil {
		return s, err
	}
	add := stage("compressing "+path, after.UnpackedSize())
	draft, err := bundle.WriteDraft(ctx, path, e, after, level, func(e bundle.Entry) (io.ReadCloser, error) {
		if name := from[e.Name]; name != "" {
			r, err := all.open(name)
			return io.NopCloser(r), err
		}
		return d.open(e.Name, all)
	}, func(_ bundle.Entry, n int64) { add(n) })
	if err != nil {
		return s, err
	}
	if draft.SHA256 != d.New.SHA256 {
		draft.Discard()
		return s, fault.New(fault.Bundle, "writing %s: the result has the sha256 %s and not %s: this version of bundle compresses differently", path, draft.SHA256, d.New.SHA256).
			Hint("use the version of bundle that created the delta: " + d.Bundle)
	}
	return draft, nil
}

// maxExecutable is the largest launcher or installer, because they are in memory.
const maxExecutable = 512 << 20

// open reads a content of the new bundle. The spool has the contents of the old one.
func (d *File) open(name string, old *spool) (io.ReadCloser, error) {
	c := d.content(name)
	if c == nil {
		return nil, d.damaged("it does not have %s", name)
	}
	p := &patchReader{delta: d, name: name, left: c.Size}
	if c.Reference != "" {
		r, err := old.open(c.Reference)
		if err != nil {
			return nil, d.damaged("the reference of %s: %w", name, err)
		}
		p.reference = r
	}
	offset := c.offset
	for _, f := range []struct {
		to   **zstd.Decoder
		size int64
	}{{&p.steps, c.Steps}, {&p.added, c.Added}, {&p.inserted, c.Inserted}} {
		z, err := zstd.NewReader(io.NewSectionReader(d.file, offset, f.size), zstd.WithDecoderMaxWindow(insertedWindow), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			p.Close()
			return nil, err
		}
		*f.to = z
		offset += f.size
	}
	p.list = bufio.NewReader(p.steps)
	return p, nil
}

// A patchReader makes a content from its reference and three frames.
type patchReader struct {
	delta                  *File
	name                   string
	reference              *io.SectionReader // nil if there is none
	steps, added, inserted *zstd.Decoder
	list                   *bufio.Reader // of steps
	left                   int64         // bytes of the content
	now                    step          // what is left of the current step
	addition               []byte
}

func (p *patchReader) Close() error {
	for _, z := range []*zstd.Decoder{p.steps, p.added, p.inserted} {
		if z != nil {
			z.Close()
		}
	}
	return nil
}

func (p *patchReader) Read(b []byte) (int, error) {
	n, err := p.read(b)
	if err != nil && err != io.EOF {
		err = p.delta.damaged("%s: %w", p.name, err)
	}
	return n, err
}

func (p *patchReader) read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for p.now.copied == 0 && p.now.inserted == 0 {
		if p.left == 0 {
			return 0, io.EOF
		}
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	if p.now.copied == 0 {
		n, err := io.ReadFull(p.inserted, b[:min(len(b), p.now.inserted)])
		p.now.inserted -= n
		p.left -= int64(n)
		return n, notEOF(err)
	}
	b = b[:min(len(b), p.now.copied, 256<<10)]
	if _, err := p.reference.ReadAt(b, int64(p.now.from)); err != nil {
		return 0, notEOF(err)
	}
	p.addition = append(p.addition[:0], b...)
	if _, err := io.ReadFull(p.added, p.addition); err != nil {
		return 0, notEOF(err)
	}
	for i := range b {
		b[i] += p.addition[i]
	}
	p.now.from += len(b)
	p.now.copied -= len(b)
	p.left -= int64(len(b))
	return len(b), nil
}

// next reads a step. It must be within the reference and within what is left of the content.
func (p *patchReader) next() error {
	ahead, err := binary.ReadVarint(p.list)
	var copied, inserted uint64
	if err == nil {
		copied, err = binary.ReadUvarint(p.list)
	}
	if err == nil {
		inserted, err = binary.ReadUvarint(p.list)
	}
	if err != nil {
		return notEOF(err)
	}
	var size int64
	if p.reference != nil {
		size = p.reference.Size()
	}
	from := int64(p.now.from) + ahead
	left := uint64(p.left)
	if copied > left || inserted > left-copied || copied+inserted == 0 || from < 0 || from > size || copied > uint64(size-from) {
		return fmt.Errorf("a step copies %d bytes from %d and inserts %d, with %d bytes left and a reference of %d", copied, from, inserted, left, size)
	}
	p.now = step{from: int(from), copied: int(copied), inserted: int(inserted)}
	return nil
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
