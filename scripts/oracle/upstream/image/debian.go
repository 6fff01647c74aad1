package image

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"airlift/scripts/oracle/upstream/components"
	"airlift/scripts/oracle/upstream/debian"
)

// unpackDebian returns the files of Debian packages for the architecture of a tree, under
// merged-/usr names. With dependencies it includes the packages that they need.
func (t *tree) unpackDebian(ctx context.Context, dependencies bool, packages ...string) (*tree, error) {
	dir, err := os.MkdirTemp("", "upstream-deb-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	debs, err := debian.Download(ctx, dir, t.arch, dependencies, packages...)
	if err != nil {
		return nil, err
	}
	all := newTree(t.arch)
	for _, deb := range debs {
		data, err := debian.Run(ctx, dir, "dpkg-deb", "--fsys-tarfile", deb)
		if err != nil {
			return nil, err
		}
		if err := all.addTar(bytes.NewReader(data)); err != nil {
			return nil, fmt.Errorf("reading %s: %w", filepath.Base(deb), err)
		}
	}
	return all, nil
}

// addTar adds the files and links of a package. Packages may still use /bin, /sbin and
// /lib, which are links into /usr on a merged-/usr system.
func (t *tree) addTar(r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := merged(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			data, err := io.ReadAll(tr)
			if err != nil {
				return err
			}
			t.file(name, h.Mode, data)
		case tar.TypeSymlink:
			t.link(name, h.Linkname)
		case tar.TypeLink:
			target := t.entries[merged(h.Linkname)]
			if target == nil {
				return fmt.Errorf("%s is a hard link to %s, which does not precede it", name, h.Linkname)
			}
			t.file(name, target.header.Mode, target.data)
		}
	}
}

// merged returns the name of a path on a merged-/usr system.
func merged(name string) string {
	name = strings.TrimPrefix(path.Clean(name), "/")
	for _, dir := range []string{"bin/", "sbin/", "lib/", "lib64/"} {
		if strings.HasPrefix(name, dir) {
			return "usr/" + name
		}
	}
	return name
}

// copy copies the entries from another tree for which keep returns true.
func (t *tree) copy(from *tree, keep func(name string) bool) {
	for name, e := range from.entries {
		if e.header.Typeflag != tar.TypeDir && keep(name) {
			t.add(e)
		}
	}
}

// addLibraries copies from another tree the shared libraries and the dynamic loader that the
// binaries in this tree need, with their dependencies. A missing library is an error, so that a
// binary in a layer can start. Libraries in a lower layer are not copied.
func (t *tree) addLibraries(from *tree, below func(name string) bool) error {
	var queue []string
	for name := range t.entries {
		queue = append(queue, name)
	}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		needed, err := t.neededBy(t.entries[name])
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		for _, file := range needed {
			for t.entries[file] == nil && !below(file) {
				e := from.entries[file]
				if e == nil {
					return fmt.Errorf("%s needs %s, but no package has it", name, file)
				}
				t.add(e)
				queue = append(queue, file)
				if e.header.Typeflag == tar.TypeSymlink { // libx.so.1 -> libx.so.1.2.3
					file = linkTarget(file, e.header.Linkname)
				}
			}
		}
	}
	return nil
}

func linkTarget(name, target string) string {
	if path.IsAbs(target) {
		return merged(target)
	}
	return path.Join(path.Dir(name), target)
}

// libraryDir is Debian's directory for shared libraries.
func (t *tree) libraryDir() string { return "usr/lib/" + components.Triplet(t.arch) }

// neededBy returns the paths of the libraries and of the loader that an ELF file needs, and
// nothing for other files.
func (t *tree) neededBy(e *entry) ([]string, error) {
	if !bytes.HasPrefix(e.data, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	f, err := elf.NewFile(bytes.NewReader(e.data))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range names {
		paths = append(paths, path.Join(t.libraryDir(), name))
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			loader, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			paths = append(paths, merged(strings.TrimRight(string(loader), "\x00")))
		}
	}
	return paths, nil
}
