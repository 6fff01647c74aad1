package builder

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"airlift/bundle"
	"airlift/bundle/builder/events"
	"airlift/images/fetch"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// openers open the contents of entries, by the names of the entries.
type openers map[string]func() (io.ReadCloser, error)

// keep keeps content in memory.
func (o *openers) keep(name string, content []byte) {
	o.set(name, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
}

func (o *openers) set(name string, open func() (io.ReadCloser, error)) {
	if *o == nil {
		*o = openers{}
	}
	(*o)[name] = open
}

// An output writes the bundle and the files next to it in two steps: write completes all of them
// under temporary names, and place gives them their names. So a build that fails changes no file.
type output struct {
	Destination
	report *reporter
	cache  *fetch.Cache
	kept   openers // contents that are not in the cache
	draft  *bundle.Draft
	// sideDrafts are in the order in which they get their names.
	sideDrafts []sideDraft
}

// check checks what is only needed to write a bundle for an architecture.
func (d Destination) check(arch string) error {
	if err := checkExecutable("launcher", d.Executables.Launcher, arch); err != nil {
		return err
	}
	if err := checkExecutable("installer", d.Executables.Installer, arch); err != nil {
		return err
	}
	if err := checkOutput(d.Output); err != nil {
		return err
	}
	if err := checkProvenance(d.Output); err != nil {
		return err
	}
	if err := checkSBOMs(d.Output, d.SBOM); err != nil {
		return err
	}
	if err := d.checkSignature(); err != nil {
		return err
	}
	return d.Level.Check()
}

// checkOutput finds an unusable output before the downloads start, and removes the temporary files of
// builds that were killed.
func checkOutput(path string) error {
	if i, err := os.Stat(path); err == nil && i.IsDir() {
		return fault.New(fault.Usage, "%q is a directory", path).Hint("name the file to write, for example --output " + filepath.Join(path, "install"))
	}
	dir := filepath.Dir(path)
	probe, err := atomicfile.Create(path)
	if err != nil {
		return fault.New(fault.Usage, "writing to %q: %w", dir, err).Hint("choose an existing, writable directory with --output")
	}
	probe.Discard()
	return nil
}

// write writes the bundle and the files next to it, and reads the bundle again. Only what was
// verified is signed.
func (o *output) write(ctx context.Context, m *bundle.Manifest, provenance func(bundle.Summary) Provenance) (bundle.Summary, error) {
	if err := o.writeDraft(ctx, m); err != nil {
		return bundle.Summary{}, err
	}
	sum := o.draft.Summary
	f, err := o.draft.Open()
	if err != nil {
		return sum, err
	}
	defer f.Close()
	if err := o.verify(ctx, f, m); err != nil {
		return sum, err
	}
	content, err := provenance(sum).encode()
	if err != nil {
		return sum, err
	}
	if err := o.prepare("provenance", ProvenancePath(o.Output), content); err != nil {
		return sum, err
	}
	if err := o.prepareSBOMs(); err != nil {
		return sum, err
	}
	return sum, o.sign(ctx, f)
}

func (o *output) writeDraft(ctx context.Context, m *bundle.Manifest) (err error) {
	o.report.Phase(events.Write)
	o.report.Printf("compression: %s\n", o.Level)
	item := o.report.Work("writing "+o.Output, m.UnpackedSize()+int64(len(o.Executables.Installer)))
	o.draft, err = bundle.WriteDraft(ctx, o.Output, o.Executables, m, o.Level, o.open, func(_ bundle.Entry, n int64) { item.Add(n) })
	if err != nil {
		item.Failed()
		return err
	}
	item.Done(fmt.Sprintf("%s written, compression ratio %.1f", progress.Bytes(o.draft.Size), float64(o.draft.UnpackedSize)/float64(o.draft.Size)))
	return nil
}

// open opens the content of an entry: one that is kept, or content of the cache.
func (o *output) open(e bundle.Entry) (io.ReadCloser, error) {
	if open, ok := o.kept[e.Name]; ok {
		return open()
	}
	return o.cache.Open(e.SHA256)
}

// verify reads the written bundle again.
func (o *output) verify(ctx context.Context, f *bundle.File, m *bundle.Manifest) error {
	o.report.Phase(events.Verify)
	item := o.report.Work("verifying "+o.Output, m.UnpackedSize())
	if err := f.Verify(ctx, func(_ bundle.Entry, n int64) { item.Add(n) }); err != nil {
		item.Failed()
		return fmt.Errorf("reading the bundle again: %w", err)
	}
	item.Done("verified")
	return nil
}
