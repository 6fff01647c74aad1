package builder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/bundle/builder/sbom"
	"airlift/bundle/signature"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// A SideFile is a file that a build writes next to a bundle.
type SideFile struct {
	What string // "provenance", "SBOM" or "signature"
	Path string
}

// SideFiles lists all files that a build may write next to the bundle at path.
func SideFiles(path string) []SideFile {
	list := []SideFile{{"provenance", ProvenancePath(path)}, {"signature", signature.Path(path)}}
	for _, name := range sbom.Formats() {
		list = append(list, SideFile{"SBOM", sbom.Format(name).Path(path)})
	}
	return list
}

// A sideDraft is a complete file that gets its name after the bundle.
type sideDraft struct {
	SideFile
	file *atomicfile.File
}

// prepare writes a file that belongs next to the bundle under a temporary name.
func (o *output) prepare(what, path string, content []byte) error {
	file, err := atomicfile.Create(path)
	if err == nil {
		o.sideDrafts = append(o.sideDrafts, sideDraft{SideFile{what, path}, file})
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
func (o *output) place() error {
	for _, f := range SideFiles(o.Output) {
		if err := o.removeEarlier(f); err != nil {
			return err
		}
	}
	if err := o.draft.Replace(); err != nil {
		return err
	}
	for _, f := range o.sideDrafts {
		if err := f.file.Replace(); err != nil {
			return fault.New(fault.Failure, "writing %s: %w: the bundle %s is complete, but has no %s", f.Path, err, o.Output, f.What).
				Hint("run the same command again; the downloads are in the cache")
		}
	}
	return nil
}

// removeEarlier removes a file of the bundle that is about to be replaced.
func (o *output) removeEarlier(f SideFile) error {
	err := os.Remove(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("removing the earlier %s: %w", f.What, err)
	case f.Path == signature.Path(o.Output) && o.Key == nil:
		o.report.Printf("%s was removed: it signed the earlier file. To sign the new one: bundle sign %s --key KEY\n", f.Path, o.Output)
	}
	return nil
}

// discard removes the files that did not get their names.
func (o *output) discard() {
	if o.draft != nil {
		o.draft.Discard()
	}
	for _, f := range o.sideDrafts {
		f.file.Discard()
	}
}
