package builder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/bundle"
	"airlift/bundle/events"
	"airlift/bundle/sbom"
	"airlift/bundle/space"
	"airlift/fault"
)

// checkSBOMs finds an unusable path or time before the downloads start.
func checkSBOMs(output string, formats []sbom.Format) error {
	for _, format := range formats {
		path := format.Path(output)
		if i, err := os.Lstat(path); err == nil && !i.Mode().IsRegular() {
			return fault.New(fault.Usage, "remove it, or choose another --output", "cannot write the SBOM: %q is not a regular file", path)
		}
	}
	_, err := sbom.Created()
	return err
}

// removeSBOMs removes the lists of the bundle that is about to be replaced, so that a list
// never belongs to another bundle than the one next to it.
func (b *builder) removeSBOMs() error {
	for _, name := range sbom.Formats() {
		if err := os.Remove(sbom.Format(name).Path(b.Output)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the earlier SBOM: %w", err)
		}
	}
	return nil
}

// writeSBOMs lists the software in the written bundle.
func (b *builder) writeSBOMs(ctx context.Context, f *bundle.File) error {
	if len(b.SBOM) == 0 {
		return nil
	}
	created, err := sbom.Created()
	if err != nil {
		return err
	}
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	b.Events.Phase(events.List)
	item := b.Progress.Item("listing the software in "+b.Output, sbom.Size(f, m))
	c, err := sbom.Read(ctx, f, item.Add)
	if err != nil {
		item.Failed()
		return err
	}
	for _, w := range c.Warnings {
		b.printWarning(w)
	}
	for _, format := range b.SBOM {
		content, err := c.Encode(format, created)
		if err == nil {
			err = sbom.WriteFile(b.Output, format, content)
		}
		if err != nil {
			item.Failed()
			return space.Explain(filepath.Dir(b.Output), fmt.Errorf("writing %s: %w", format.Path(b.Output), err))
		}
	}
	item.Done(fmt.Sprintf("%d packages and files", len(c.Items)))
	return nil
}
