package builder

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"airlift/builder/events"
	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/progress"
	"airlift/internal/space"
)

// openers open the contents of entries, by the names of the entries.
type openers map[string]func() (io.ReadCloser, error)

// keep keeps content in memory.
func (o openers) keep(name string, content []byte) {
	o[name] = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
}

// A SideFile is a file that a build writes next to a bundle.
type SideFile struct {
	What   string // "provenance", "SBOM" or "signature"
	Path   string
	format sbom.Format
}

// SideFiles lists all files that a build may write next to the bundle at path.
func SideFiles(path string) []SideFile {
	list := []SideFile{{"provenance", ProvenancePath(path), ""}, {"signature", signature.Path(path), ""}}
	for _, name := range sbom.Formats() {
		list = append(list, SideFile{"SBOM", sbom.Format(name).Path(path), sbom.Format(name)})
	}
	return list
}

// Of reports whether content is of a bundle. It is not known if the content does not show that.
func (f SideFile) Of(content []byte, m *bundle.Manifest, s bundle.Summary) (of, known bool) {
	switch f.What {
	case "signature":
		return signature.Describes(content, m.KubernetesVersion, s.Size)
	case "provenance":
		var p Provenance
		err := json.Unmarshal(content, &p)
		return p.BundleSHA256 == s.SHA256, err == nil && p.BundleSHA256 != ""
	}
	entry, known := m.SBOM(string(f.format))
	e, _ := m.Entry(entry)
	return hexSum(content) == e.SHA256, known
}

// checkDestination finds what cannot be written before the downloads start, and removes the temporary
// files of builds that were killed.
func (b *build) checkDestination() error {
	if err := checkExecutable("launcher", b.Executables.Launcher, b.Arch); err != nil {
		return err
	}
	if err := checkExecutable("installer", b.Executables.Installer, b.Arch); err != nil {
		return err
	}
	if i, err := os.Stat(b.Output); err == nil && i.IsDir() {
		return fault.New(fault.Usage, "%q is a directory", b.Output).Hint("name the file to write, for example --out " + filepath.Join(b.Output, "install"))
	}
	probe, err := atomicfile.Create(b.Output)
	if err != nil {
		return fault.New(fault.Usage, "writing to %q: %w", filepath.Dir(b.Output), err).Hint("choose an existing, writable directory with --out")
	}
	probe.Discard()
	for _, f := range SideFiles(b.Output) {
		if i, err := os.Lstat(f.Path); err == nil && !i.Mode().IsRegular() && (f.format == "" || slices.Contains(b.SBOM, f.format)) {
			return fault.New(fault.Usage, "cannot write the %s: %q is not a regular file", f.What, f.Path).Hint("remove it, or choose another --out")
		}
	}
	if _, err := sbom.Created(); err != nil {
		return err
	}
	if err := b.checkSignature(); err != nil {
		return err
	}
	return b.Level.Check()
}

// checkExecutable checks that the launcher or the installer is a static Linux
// executable for the bundle's architecture. Hosts need not have a libc.
func checkExecutable(name string, executable []byte, arch string) error {
	hint := "use a " + name + " that was built for the bundle's architecture with CGO_ENABLED=0"
	f, err := elf.NewFile(bytes.NewReader(executable))
	if err != nil {
		return fault.New(fault.Usage, "reading the %s: %w", name, err).Hint(hint)
	}
	want, ok := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if ok && f.Machine != want {
		return fault.New(fault.Usage, "the %s was built for %v, not for %v (%s)", name, f.Machine, want, arch).Hint(hint)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fault.New(fault.Usage, "the %s is not an executable (ELF type %v)", name, f.Type).Hint(hint)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fault.New(fault.Usage, "the %s is dynamically linked", name).Hint(hint)
	}
	return nil
}

// checkSignature refuses to replace a signed file by an unsigned file, or by a file signed with
// another key.
func (b *build) checkSignature() error {
	path := signature.Path(b.Output)
	if b.Key != nil {
		return b.Key.MayReplace(path)
	}
	if signed, err := signature.IsSigned(b.Output); err != nil || !signed {
		return err
	}
	return fault.New(fault.Usage, "%q is signed: only a file that is signed too may replace it", b.Output).
		Hint("add --sign-key airlift.key, or choose another path with --out; to replace it by a file without a signature, first remove the signature: rm " + fault.Word(path))
}

// addSBOMs lists the software in the bundle that the manifest describes, and adds the lists as
// its last entries: a host that imports images has then read all that it needs.
func (b *build) addSBOMs(ctx context.Context) error {
	b.Report.Phase(events.List)
	created, err := sbom.Created()
	if err != nil {
		return err
	}
	item := b.Report.Work("listing the software", b.manifest.UnpackedSize())
	c, err := b.listSoftware(ctx, item.Add)
	if err != nil {
		item.Failed()
		return fmt.Errorf("listing the software: %w", err)
	}
	for _, w := range c.Warnings {
		b.Report.Warning(w)
	}
	for _, name := range slices.Sorted(slices.Values(sbom.Formats())) {
		format := sbom.Format(name)
		content, err := c.Encode(format, created)
		if err != nil {
			item.Failed()
			return fmt.Errorf("listing the software as %s: %w", format, err)
		}
		b.kept.keep(format.Entry(), content)
		b.manifest.SBOMs = append(b.manifest.SBOMs, bundle.SBOM{Format: name, Entry: format.Entry()})
		b.manifest.Entries = append(b.manifest.Entries, bundle.Entry{Name: format.Entry(), Size: int64(len(content)), SHA256: hexSum(content)})
	}
	item.Done(fmt.Sprintf("%d packages and files", len(c.Items)))
	return b.manifest.Validate()
}

// listSoftware reads the contents of the bundle from where they are before it is written.
func (b *build) listSoftware(ctx context.Context, processed func(int64)) (*sbom.Contents, error) {
	installer := b.Executables.Installer
	return sbom.List(sbom.Source{
		Manifest: b.manifest, Launcher: bytes.NewReader(b.Executables.Launcher),
		Installer:     bundle.Entry{Name: bundle.InstallerName, Size: int64(len(installer)), SHA256: hexSum(installer)},
		CopyInstaller: func(w io.Writer) error { _, err := w.Write(installer); return err },
		Each: func(visit func(bundle.Entry, io.Reader) error) error {
			for _, e := range b.manifest.Entries {
				r, err := b.open(e)
				if err != nil {
					return err
				}
				err = visit(e, interrupt.Reader(ctx, r))
				r.Close()
				if err != nil {
					return err
				}
			}
			return nil
		},
	}, processed)
}

// open opens the content of an entry: one that is kept, or content of the cache.
func (b *build) open(e bundle.Entry) (io.ReadCloser, error) {
	if open, ok := b.kept[e.Name]; ok {
		return open()
	}
	return b.cache.Open(e.SHA256)
}

// writeFiles writes the bundle and the files next to it under temporary names, and reads the bundle
// again. Only what was verified is signed. place gives the files their names.
func (b *build) writeFiles(ctx context.Context) (err error) {
	b.Report.Phase(events.Write)
	b.Report.Printf("compression: %s\n", b.Level)
	item := b.Report.Work("writing "+b.Output, b.manifest.UnpackedSize()+int64(len(b.Executables.Installer)))
	b.draft, err = bundle.WriteDraft(ctx, b.Output, b.Executables, b.manifest, b.Level, b.open, func(_ bundle.Entry, n int64) { item.Add(n) })
	if err != nil {
		item.Failed()
		return err
	}
	item.Done(fmt.Sprintf("%s written, compression ratio %.1f", progress.Bytes(b.draft.Size), float64(b.draft.UnpackedSize)/float64(b.draft.Size)))
	f, err := b.draft.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	b.Report.Phase(events.Verify)
	item = b.Report.Work("verifying "+b.Output, b.manifest.UnpackedSize())
	if err := f.Verify(ctx, func(_ bundle.Entry, n int64) { item.Add(n) }); err != nil {
		item.Failed()
		return fmt.Errorf("reading the bundle again: %w", err)
	}
	item.Done("verified")
	content, err := b.provenance()
	if err == nil {
		err = b.writeNext("provenance", ProvenancePath(b.Output), content)
	}
	if err != nil {
		return err
	}
	for _, format := range b.SBOM {
		r, err := b.kept[format.Entry()]()
		if err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err == nil {
			err = b.writeNext("SBOM", format.Path(b.Output), content)
		}
		if err != nil {
			return err
		}
	}
	if b.Key == nil {
		return nil
	}
	b.Report.Phase(events.Sign)
	item = b.Report.Work("signing "+b.Output, f.Size())
	text, _, err := signature.Of(ctx, f, *b.Key, item.Add)
	if err == nil {
		err = b.writeNext("signature", signature.Path(b.Output), text)
	}
	if err != nil {
		item.Failed()
		return fmt.Errorf("signing the bundle: %w", err)
	}
	item.Done("signed, key " + b.Key.ID())
	return nil
}

// writeNext writes a file that belongs next to the bundle under a temporary name.
func (b *build) writeNext(what, path string, content []byte) error {
	file, err := atomicfile.Create(path)
	if err == nil {
		b.sideDrafts = append(b.sideDrafts, sideDraft{SideFile{What: what, Path: path}, file})
		_, err = file.Write(content)
	}
	if err == nil {
		err = file.Finish(0o644)
	}
	if err != nil {
		return space.Explain(filepath.Dir(path), fmt.Errorf("writing %s: %w", path, err))
	}
	return nil
}

// place gives the bundle and the files next to it their names. The files of an earlier bundle are
// removed before it is replaced: a build that is killed in between leaves a bundle without these
// files, never with the files of another bundle.
func (b *build) place() error {
	for _, f := range SideFiles(b.Output) {
		switch err := os.Remove(f.Path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("removing the earlier %s: %w", f.What, err)
		case f.What == "signature" && b.Key == nil:
			b.Report.Printf("%s was removed: it signed the earlier file. To sign the new one: bundle sign %s --key KEY\n", f.Path, b.Output)
		}
	}
	if err := b.draft.Replace(); err != nil {
		return err
	}
	for _, f := range b.sideDrafts {
		if err := f.file.Replace(); err != nil {
			return fault.New(fault.Failure, "writing %s: %w: the bundle %s is complete, but has no %s", f.Path, err, b.Output, f.What).
				Hint("run the same command again; the downloads are in the cache")
		}
	}
	return nil
}

// discard removes the files that did not get their names.
func (b *build) discard() {
	if b.draft != nil {
		b.draft.Discard()
	}
	for _, f := range b.sideDrafts {
		f.file.Discard()
	}
}
