package delta

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/space"
)

// Larger contents are not compared with older ones, because both are in memory then.
const maxCompared = 512 << 20

// The windows of the frames: about the memory that each needs when the delta is applied.
const (
	stepWindow     = 1 << 20
	addedWindow    = 8 << 20
	insertedWindow = 32 << 20
)

// A Stage is called when a part of the work begins, with the number of bytes to process; it
// returns a function to report processed ones.
type Stage func(what string, size int64) func(n int64)

// Options are the options of Create.
type Options struct {
	Bundle string // the version of the bundle command
	Stage  Stage
}

// Create writes the delta from old to new to path, and proves that Apply returns new. An existing
// file is replaced.
func Create(ctx context.Context, old, new *bundle.File, path string, o Options) (Header, error) {
	h, err := create(ctx, old, new, path, o)
	return h, space.Explain(filepath.Dir(path), err)
}

func create(ctx context.Context, old, new *bundle.File, path string, o Options) (Header, error) {
	h := Header{FormatVersion: formatVersion, Bundle: o.Bundle}
	before, err := old.Manifest()
	if err != nil {
		return h, err
	}
	after, err := new.Manifest()
	if err != nil {
		return h, err
	}
	if before.Platform != after.Platform {
		return h, fault.New(fault.Usage, "%s is for %s, and %s is for %s", old.Path(), before.Platform, new.Path(), after.Platform).Hint("give two bundles for the same platform")
	}
	if h.Old, err = side(old); err != nil {
		return h, err
	}
	if h.New, err = side(new); err != nil {
		return h, err
	}
	add := o.Stage("reading "+new.Path(), new.Size())
	if h.New.SHA256, err = sum(ctx, new); err != nil {
		return h, err
	}
	add(new.Size())
	if h.Old.is(new) {
		return h, fault.New(fault.Usage, "%s and %s have the same contents", old.Path(), new.Path()).Hint("give the old file that the site has, and the new file")
	}
	level, err := new.Level(ctx)
	if err != nil {
		return h, err
	}
	h.Compression = level.Name()

	w := &writer{}
	if w.spool, err = newSpool(path); err != nil {
		return h, err
	}
	defer w.spool.close()
	body, err := newSpool(path)
	if err != nil {
		return h, err
	}
	defer body.close()
	w.body = body.file
	if err := w.writeContents(ctx, old, new, before, after, o.Stage); err != nil {
		return h, err
	}
	h.Contents = w.contents

	f, err := atomicfile.Create(path)
	if err != nil {
		return h, err
	}
	defer f.Discard()
	if err := write(f, h, io.NewSectionReader(w.body.File, 0, w.size)); err != nil {
		return h, fmt.Errorf("writing %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		return h, err
	}
	// The proof: what a site will do.
	d, err := Open(ctx, f.Name())
	if err != nil {
		return h, err
	}
	defer d.Close()
	proof, err := d.Draft(ctx, old, filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".proof"), o.Stage)
	if err != nil {
		return h, fmt.Errorf("applying the delta to check it: %w", err)
	}
	proof.Discard()
	if err := f.Finish(0o644); err != nil {
		return h, err
	}
	return h, f.Replace()
}

type writer struct {
	spool    *spool // contents of the old bundle that are references
	body     *atomicfile.File
	size     int64
	contents []Content
}

// writeContents writes the contents of the new bundle that the old one does not have.
func (w *writer) writeContents(ctx context.Context, old, new *bundle.File, before, after *bundle.Manifest, stage Stage) error {
	similar, has := references(before, after), bySHA256(before)
	wanted, needed := map[string]bool{}, map[string]bool{}
	for _, e := range after.Entries {
		if has[e.SHA256] == "" {
			wanted[e.Name], needed[similar[e.Name]] = true, true
		}
	}
	if err := unpack(ctx, old, w.spool, needed, stage); err != nil {
		return err
	}
	return contents(ctx, new, wanted, stage, "comparing with "+old.Path(), func(name string, r io.Reader, size int64) error {
		reference := cmp.Or(similar[name], name) // the launcher, the manifest and the installer keep their names
		return w.write(ctx, name, reference, r, size)
	})
}

func bySHA256(m *bundle.Manifest) map[string]string {
	names := map[string]string{}
	for _, e := range m.Entries {
		names[e.SHA256] = e.Name
	}
	return names
}

// unpack copies the launcher, the manifest, the installer and the needed entries of a bundle.
func unpack(ctx context.Context, f *bundle.File, s *spool, needed map[string]bool, stage Stage) error {
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	if err := space.Check(filepath.Dir(s.file.Name()), "the contents of "+f.Path(), sizeOf(m, needed)); err != nil {
		return err
	}
	return contents(ctx, f, needed, stage, "unpacking "+f.Path(), func(name string, r io.Reader, _ int64) error { return s.add(name, r) })
}

func sizeOf(m *bundle.Manifest, wanted map[string]bool) (size int64) {
	for _, e := range m.Entries {
		if wanted[e.Name] {
			size += e.Size
		}
	}
	return size
}

// contents calls use for the launcher, the manifest, the installer, and the wanted entries in their order. stage
// counts the entries.
func contents(ctx context.Context, f *bundle.File, wanted map[string]bool, stage Stage, what string, use func(name string, r io.Reader, size int64) error) error {
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	manifest, err := m.Encode()
	if err != nil {
		return err
	}
	var installer bytes.Buffer
	if err := f.CopyInstaller(ctx, &installer); err != nil {
		return err
	}
	launcher := f.Launcher()
	if err := use(launcherName, launcher, launcher.Size()); err != nil {
		return err
	}
	if err := use(bundle.ManifestName, bytes.NewReader(manifest), int64(len(manifest))); err != nil {
		return err
	}
	if err := use(bundle.InstallerName, &installer, int64(installer.Len())); err != nil {
		return err
	}
	add := stage(what, sizeOf(m, wanted))
	return f.Each(ctx, func(e bundle.Entry) bool { return wanted[e.Name] }, func(e bundle.Entry, content bundle.Content) error {
		return use(e.Name, io.TeeReader(content, interrupt.Meter(add)), e.Size)
	})
}

// write writes the frames of one content.
func (w *writer) write(ctx context.Context, name, similar string, r io.Reader, size int64) error {
	c := Content{Name: name, Size: size}
	var reference []byte
	if old := w.spool.at[similar]; old != nil && old.Size() > 0 && old.Size() <= maxCompared && size <= maxCompared {
		c.Reference, reference = similar, make([]byte, old.Size())
		if _, err := old.ReadAt(reference, 0); err != nil {
			return err
		}
	}
	if reference == nil {
		return w.whole(c, r)
	}
	wanted, err := io.ReadAll(interrupt.Reader(ctx, r))
	if err != nil {
		return err
	}
	var list, sums, inserted []byte
	at, last := 0, 0
	for _, s := range steps(reference, wanted) {
		if s.copied+s.inserted == 0 {
			continue
		}
		list = binary.AppendVarint(list, int64(s.from-last))
		list = binary.AppendUvarint(list, uint64(s.copied))
		list = binary.AppendUvarint(list, uint64(s.inserted))
		last = s.from + s.copied
		sums = difference(sums, reference[s.from:last], wanted[at:at+s.copied])
		at += s.copied
		inserted = append(inserted, wanted[at:at+s.inserted]...)
		at += s.inserted
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, f := range []struct {
		size    *int64
		content []byte
		window  int
	}{{&c.Steps, list, stepWindow}, {&c.Added, sums, addedWindow}, {&c.Inserted, inserted, insertedWindow}} {
		if *f.size, err = w.frame(bytes.NewReader(f.content), f.window); err != nil {
			return err
		}
	}
	w.contents = append(w.contents, c)
	return nil
}

// whole writes the frames of a content without a reference.
func (w *writer) whole(c Content, r io.Reader) (err error) {
	var list []byte
	if c.Size > 0 {
		list = binary.AppendUvarint(binary.AppendUvarint(binary.AppendVarint(nil, 0), 0), uint64(c.Size))
	}
	if c.Steps, err = w.frame(bytes.NewReader(list), stepWindow); err != nil {
		return err
	}
	if c.Inserted, err = w.frame(r, insertedWindow); err != nil {
		return err
	}
	w.contents = append(w.contents, c)
	return nil
}

func (w *writer) frame(r io.Reader, window int) (int64, error) {
	begin := w.size
	out := io.NewOffsetWriter(w.body, begin)
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(z, r)
	if err := errors.Join(err, z.Close()); err != nil {
		return 0, err
	}
	n, err := out.Seek(0, io.SeekCurrent)
	w.size += n
	return n, err
}
