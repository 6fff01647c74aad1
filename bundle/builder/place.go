package builder

import (
	"fmt"
	"path/filepath"

	"airlift/bundle/atomicfile"
	"airlift/bundle/space"
	"airlift/fault"
)

// A sideFile is a complete file that gets its name, next to the bundle, after the bundle.
type sideFile struct {
	what string // "provenance"
	path string
	file *atomicfile.File
}

// prepare writes a file that belongs next to the bundle under a temporary name.
func (o *output) prepare(what, path string, content []byte) error {
	file, err := atomicfile.Create(path)
	if err == nil {
		o.beside = append(o.beside, sideFile{what, path, file})
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
// removed before it is replaced: a build that is killed in between leaves a bundle without such
// files, never with those of another.
func (o *output) place() error {
	for _, remove := range []func() error{o.removeProvenance, o.removeSBOMs, o.removeSignature} {
		if err := remove(); err != nil {
			return err
		}
	}
	if err := o.draft.Replace(); err != nil {
		return err
	}
	for _, f := range o.beside {
		if err := f.file.Replace(); err != nil {
			return fault.New(fault.Failure, "run the same command again; the downloads are in the cache",
				"writing %s: %w: the bundle %s is complete, but without its %s", f.path, err, o.Output, f.what)
		}
	}
	return nil
}

// discard removes the files that did not get their names.
func (o *output) discard() {
	if o.draft != nil {
		o.draft.Discard()
	}
	for _, f := range o.beside {
		f.file.Discard()
	}
}
