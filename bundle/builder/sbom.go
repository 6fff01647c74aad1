package builder

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"airlift/bundle"
	"airlift/bundle/builder/events"
	"airlift/bundle/builder/sbom"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// checkSBOMs finds an unusable path or time before the downloads start.
func checkSBOMs(output string, formats []sbom.Format) error {
	for _, format := range formats {
		path := format.Path(output)
		if i, err := os.Lstat(path); err == nil && !i.Mode().IsRegular() {
			return fault.New(fault.Usage, "cannot write the SBOM: %q is not a regular file", path).Hint("remove it, or choose another --output")
		}
	}
	_, err := sbom.Created()
	return err
}

// addSBOMs lists the software in the bundle that the manifest describes, and adds the lists as
// its last entries: a host that imports images has then read all that it needs.
func (o *output) addSBOMs(ctx context.Context, m *bundle.Manifest) error {
	o.report.Phase(events.List)
	created, err := sbom.Created()
	if err != nil {
		return err
	}
	item := o.report.Work("listing the software", m.UnpackedSize())
	c, err := o.list(ctx, m, item.Add)
	if err != nil {
		item.Failed()
		return fmt.Errorf("listing the software: %w", err)
	}
	for _, w := range c.Warnings {
		o.report.Warning(w)
	}
	for _, name := range slices.Sorted(slices.Values(sbom.Formats())) {
		format := sbom.Format(name)
		content, err := c.Encode(format, created)
		if err != nil {
			item.Failed()
			return fmt.Errorf("listing the software as %s: %w", format, err)
		}
		o.kept.keep(format.Entry(), content)
		m.SBOMs = append(m.SBOMs, bundle.SBOM{Format: name, Entry: format.Entry()})
		m.Entries = append(m.Entries, bundle.Entry{Name: format.Entry(), Size: int64(len(content)), SHA256: hexSum(content)})
	}
	item.Done(fmt.Sprintf("%d packages and files", len(c.Items)))
	return m.Validate()
}

// list reads the contents of the bundle from where they are before it is written.
func (o *output) list(ctx context.Context, m *bundle.Manifest, processed func(int64)) (*sbom.Contents, error) {
	rest := m.Entries
	var open io.Closer = io.NopCloser(nil)
	defer func() { open.Close() }()
	installer := o.Executables.Installer
	return sbom.List(sbom.Source{
		Manifest: m, Launcher: bytes.NewReader(o.Executables.Launcher),
		Installer:     bundle.Entry{Name: bundle.InstallerName, Size: int64(len(installer)), SHA256: hexSum(installer)},
		CopyInstaller: func(w io.Writer) error { _, err := w.Write(installer); return err },
		Next: func() (bundle.Entry, io.Reader, error) {
			open.Close()
			if len(rest) == 0 {
				return bundle.Entry{}, nil, io.EOF
			}
			e := rest[0]
			rest = rest[1:]
			r, err := o.open(e)
			if err != nil {
				return e, nil, err
			}
			open = r
			return e, interrupt.Reader(ctx, r), nil
		},
	}, processed)
}

// prepareSBOMs prepares the bundle's lists next to it.
func (o *output) prepareSBOMs() error {
	for _, format := range o.SBOM {
		r, err := o.kept[format.Entry()]()
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := o.prepare("SBOM", format.Path(o.Output), content); err != nil {
			return err
		}
	}
	return nil
}
