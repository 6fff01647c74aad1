package sbom

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// A layerFile is the name of a file in a layer's tar, and the packages found in it.
type layerFile struct {
	path  string
	kind  fileKind
	found *found // nil if nothing was
	link  string // the target of a hard link
}

type fileKind byte

const (
	otherFile fileKind = iota // everything but directories
	directory
	hardLink
	whiteout // path is removed from the layers below
	opaque   // the contents of path are removed from the layers below
)

// found has the findings in one file of a layer.
type found struct {
	path    string
	binary  *goBinary
	db      *database
	release *release
}

// Limits of all layers of a bundle together, against hostile ones.
const (
	maxNames  = 256 << 20 // bytes of file names
	maxPath   = 4096      // Linux allows no longer path
	whPrefix  = ".wh."
	whOpaque  = ".wh..wh..opq"
	whPrivate = ".wh..wh." // other names of aufs
)

var errNames = fmt.Errorf("the names of the files in its layers have more than %d bytes", maxNames)

// A layerReader reads the layers of one bundle.
type layerReader struct {
	spool    *spool
	names    int64 // bytes so far
	warnings *[]string
}

// read reads a layer's tar of size bytes.
func (l *layerReader) read(name string, r io.Reader, size int64) (files []layerFile, err error) {
	left := size // what sparse files may still unpack to
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return files, nil
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
			l.warn("%s: it is not a complete tar, so its packages are not listed", name)
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		p := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if p == "" || len(h.Name) > maxPath || len(h.Linkname) > maxPath {
			continue
		}
		if l.names += int64(len(p) + len(h.Linkname) + 64); l.names > maxNames {
			return nil, errNames
		}
		file := entry(p, h)
		if h.Typeflag == tar.TypeReg && file.kind == otherFile {
			if file.found, err = l.search(p, t, &left); err != nil {
				var large tooLarge
				if !errors.As(err, &large) {
					return nil, fmt.Errorf("%s: /%s: %w", name, p, err)
				}
				l.warn("%s: /%s: %v, so it is not listed", name, p, err)
			}
		}
		files = append(files, file)
	}
}

func (l *layerReader) warn(format string, args ...any) {
	const most = 1000
	if len(*l.warnings) < most {
		*l.warnings = append(*l.warnings, printable(fmt.Sprintf(format, args...)))
	}
}

// entry classifies an entry of a layer.
func entry(p string, h *tar.Header) layerFile {
	dir, base := path.Split(p)
	switch {
	case base == whOpaque:
		return layerFile{path: strings.TrimSuffix(dir, "/"), kind: opaque}
	case strings.HasPrefix(base, whPrivate):
		return layerFile{path: p}
	case strings.HasPrefix(base, whPrefix):
		return layerFile{path: dir + strings.TrimPrefix(base, whPrefix), kind: whiteout}
	case h.Typeflag == tar.TypeDir:
		return layerFile{path: p, kind: directory}
	case h.Typeflag == tar.TypeLink:
		return layerFile{path: p, kind: hardLink, link: strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")}
	}
	return layerFile{path: p}
}

// search returns what a file contains, or nil. It reads only package databases, os-release
// and ELF files; left is reduced by what it reads.
func (l *layerReader) search(p string, r io.Reader, left *int64) (*found, error) {
	r = &limited{r: r, left: left}
	if kind := databaseKind(p); kind != "" {
		content, err := readAtMost(r, maxDatabase, "the package database")
		if err != nil {
			return nil, err
		}
		db, err := parseDatabase(kind, content)
		if errors.Is(err, bufio.ErrTooLong) {
			return nil, tooLarge{"a line of the package database", 8 << 20}
		}
		return &found{path: p, db: db}, err
	}
	if isRelease(p) {
		content, err := readAtMost(r, maxRelease, "os-release")
		return &found{path: p, release: parseRelease(content)}, err
	}
	magic := make([]byte, len(elfMagic))
	if n, err := io.ReadFull(r, magic); err == io.EOF || err == io.ErrUnexpectedEOF || err == nil && string(magic[:n]) != elfMagic {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	b, err := l.spool.read(io.MultiReader(strings.NewReader(elfMagic), r))
	if b == nil || err != nil {
		return nil, err
	}
	return &found{path: p, binary: b}, nil
}

func readAtMost(r io.Reader, limit int64, what string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, tooLarge{what, limit}
	}
	return b, err
}

// A limited reader fails when a layer's sparse files unpack to more than the layer's size.
type limited struct {
	r    io.Reader
	left *int64
}

func (l *limited) Read(p []byte) (int, error) {
	if *l.left <= 0 {
		var one [1]byte // an end at the limit is allowed
		if n, err := l.r.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, tooLarge{"the unpacked layer", 0}
	}
	n, err := l.r.Read(p[:min(int64(len(p)), *l.left)])
	*l.left -= int64(n)
	return n, err
}
