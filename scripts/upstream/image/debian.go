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
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// aptDepends lists a package with all its dependencies.
var aptDepends = []string{"depends", "--recurse", "--no-recommends", "--no-suggests",
	"--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"}

// unpackDebian downloads Debian packages with apt from this machine's sources and returns their
// files, under merged-/usr names. With closure it includes their dependencies.
func unpackDebian(ctx context.Context, closure bool, packages ...string) (*tree, error) {
	dir, err := os.MkdirTemp("", "upstream-deb-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := command(ctx, dir, "apt-cache", "show", packages[0]); err != nil {
		// On a new machine apt has no package lists.
		if _, err := command(ctx, dir, "apt-get", "update", "-q"); err != nil {
			return nil, err
		}
	}
	if closure {
		out, err := command(ctx, dir, "apt-cache", append(aptDepends, packages...)...)
		if err != nil {
			return nil, err
		}
		packages = nil
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "<") {
				packages = append(packages, strings.TrimSpace(line))
			}
		}
	}
	// apt would download as its own user, who cannot write here.
	args := append([]string{"download", "-q", "-o", "APT::Sandbox::User=root"}, packages...)
	if _, err := command(ctx, dir, "apt-get", args...); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	all := newTree()
	for _, deb := range debs {
		data, err := command(ctx, dir, "dpkg-deb", "--fsys-tarfile", deb)
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
		needed, err := neededBy(t.entries[name])
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

// libraryDir is Debian's directory for the shared libraries of amd64.
const libraryDir = "usr/lib/x86_64-linux-gnu"

// neededBy returns the paths of the libraries and of the loader that an ELF file needs, and
// nothing for other files.
func neededBy(e *entry) ([]string, error) {
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
		paths = append(paths, path.Join(libraryDir, name))
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

func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}
