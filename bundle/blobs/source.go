package blobs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/encoder"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/space"
)

// A Bundle is a bundle whose blobs the caller needs. Base is the base of an additional bundle; nil
// if the caller needs no layers that only the base has.
type Bundle struct {
	File, Base *bundle.File
	manifest   *bundle.Manifest
	inBase     map[string]int64
	kept       map[string]bool
	impossible []impossible
}

type impossible struct {
	digest, why string
	images      []string
}

// Open reads the manifest of a bundle, which must not be a thin file. base may be nil.
func Open(file, base *bundle.File) (*Bundle, error) {
	if err := file.NeedsWhole(); err != nil {
		return nil, err
	}
	m, err := file.Manifest()
	if err != nil {
		return nil, err
	}
	b := &Bundle{File: file, Base: base, manifest: m, inBase: m.OnlyInBase(), kept: m.KeptBlobs()}
	switch {
	case base == nil:
	case m.Base == nil:
		return nil, fault.New(fault.Usage, "%s was built without a base", file.Path()).Hint("remove --base")
	case m.Base.ManifestSHA256 != base.ManifestSHA256():
		return nil, fault.New(fault.Usage, "%s is not the base of %s", base.Path(), file.Path()).Hint("use the bundle that was the base of the build, or a copy")
	}
	return b, nil
}

// Manifest returns the manifest of the bundle.
func (b *Bundle) Manifest() *bundle.Manifest { return b.manifest }

// A Source is where the blob of a layer comes from.
type Source struct {
	bundle.Descriptor
	entry    string
	recipe   encoder.Recipe
	compress bool // entry is uncompressed, and recipe compresses it
	inBase   bool
}

const whyBase = "is only in the base"

// Source returns the source of the blob d, which is layer l of an image. It returns nil if no
// source has the blob; Refusal then reports it.
func (b *Bundle) Source(image string, l bundle.Layer, d bundle.Descriptor) *Source {
	s := &Source{Descriptor: d, entry: bundle.BlobName(l.DiffID)}
	_, s.inBase = b.inBase[l.DiffID]
	switch {
	case s.inBase && b.Base == nil:
		return b.refuse(image, d, whyBase)
	case d.Digest == l.DiffID:
	case b.kept[bundle.BlobName(d.Digest)]:
		s.entry, s.inBase = bundle.BlobName(d.Digest), false
	case l.Compressed == nil:
		return b.refuse(image, d, "upstream's compressed blob was not available to the build")
	default:
		if s.recipe, s.compress = l.Compressed.Recipe(); !s.compress {
			return b.refuse(image, d, "no encoder reproduces upstream's compressed blob")
		}
	}
	return s
}

func (b *Bundle) refuse(image string, d bundle.Descriptor, why string) *Source {
	at := slices.IndexFunc(b.impossible, func(i impossible) bool { return i.digest == d.Digest })
	if at < 0 {
		at = len(b.impossible)
		b.impossible = append(b.impossible, impossible{digest: d.Digest, why: why})
	}
	if i := &b.impossible[at]; !slices.Contains(i.images, image) {
		i.images = append(i.images, image)
	}
	return nil
}

// Refusal returns an error that lists the blobs without a source. done is "pushed".
func (b *Bundle) Refusal(done string) error {
	if len(b.impossible) == 0 {
		return nil
	}
	var lines []string
	base := 0
	for _, i := range b.impossible {
		if i.why == whyBase {
			base++
		}
		lines = append(lines, fmt.Sprintf("  %s of %s: %s", i.digest, strings.Join(i.images, ", "), i.why))
	}
	hint := "build the bundle again with --keep-compressed-layers"
	if base > 0 {
		hint = "add --base FILE, the bundle that was the base of the build"
	}
	what := "1 layer"
	if len(lines) > 1 {
		what = fmt.Sprintf("%d layers", len(lines))
	}
	return fault.New(fault.Failure, "%s of %s cannot be %s with upstream's digest; nothing was %s:\n%s",
		what, b.File.Path(), done, done, strings.Join(lines, "\n")).Hint(hint)
}

// Make calls use with the content of each blob, in the order of the bundle. The content has the
// digest of the blob.
func (b *Bundle) Make(ctx context.Context, sources []*Source, use func(*Source, *io.SectionReader) error) error {
	for _, f := range []*bundle.File{b.File, b.Base} {
		byEntry := map[string][]*Source{}
		for _, s := range sources {
			if s.inBase == (f == b.Base) {
				byEntry[s.entry] = append(byEntry[s.entry], s)
			}
		}
		if len(byEntry) == 0 {
			continue
		}
		err := f.Each(ctx, func(e bundle.Entry) bool { return byEntry[e.Name] != nil }, func(e bundle.Entry, content bundle.Content) error {
			return makeAll(ctx, content, byEntry[e.Name], use)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// makeAll makes the blobs of one layer. Upstream may have compressed it in several ways.
func makeAll(ctx context.Context, content io.Reader, sources []*Source, use func(*Source, *io.SectionReader) error) error {
	var spools []*os.File
	defer func() {
		for _, f := range spools {
			f.Close()
		}
	}()
	var out []io.Writer
	var err error
	for _, s := range sources {
		var f *os.File
		if f, err = space.Temporary("airlift-layer-*"); err != nil {
			break
		}
		spools = append(spools, f)
		var w *Writer
		if w, err = s.NewWriter(f); err != nil {
			break
		}
		out = append(out, w)
	}
	if err == nil {
		_, err = io.Copy(io.MultiWriter(out...), interrupt.Reader(ctx, content))
	}
	for _, w := range out {
		err = cmp.Or(err, w.(*Writer).Close())
	}
	err = space.Explain(os.TempDir(), err)
	for n := 0; n < len(sources) && err == nil; n++ {
		err = use(sources[n], io.NewSectionReader(spools[n], 0, sources[n].Size))
	}
	return err
}
