package ospackage

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

const arMagic = "!<arch>\n"

// Limits against hostile files, in bytes. The largest control archives of Debian have less than 2 MB.
const (
	maxControlTar = 64 << 20
	maxControl    = 1 << 20
	maxSignature  = 1 << 20
)

// errTruncated is the error of a file that ends too early.
var errTruncated = errors.New("it is not complete: copy it again")

// readDeb reads an archive of ar(1) with the members debian-binary, control.tar and data.tar, and perhaps signatures.
func readDeb(r *bufio.Reader) (p *Package, err error) {
	if _, err := r.Discard(len(arMagic)); err != nil {
		return nil, err
	}
	signature, data := "", false
	for n := 0; ; n++ {
		name, size, err := nextMember(r)
		if err == io.EOF && p != nil && data {
			p.Signature = signature
			return p, nil
		}
		if err == io.EOF {
			return nil, errTruncated
		}
		if err != nil {
			return nil, err
		}
		member := &io.LimitedReader{R: r, N: size}
		switch base, extension, _ := strings.Cut(name, ".tar"); {
		case n == 0:
			version, err := io.ReadAll(io.LimitReader(member, 64))
			if err == nil && (name != "debian-binary" || !strings.HasPrefix(string(version), "2.")) {
				err = fmt.Errorf("it is not a .deb of version 2: its first part is %q", name)
			}
			if err != nil {
				return nil, err
			}
		case base == "control" && p == nil:
			if p, err = readControl(member, extension); err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
		case base == "data" && p != nil:
			if p.files, err = readFiles(member, extension); err != nil && extension != ".lzma" { // of old packages: dpkg checks them
				return nil, fmt.Errorf("reading %s: %w", name, complete(err))
			}
			data = true
		case strings.HasPrefix(name, "_gpg"):
			content, err := io.ReadAll(io.LimitReader(member, maxSignature))
			if err != nil {
				return nil, err
			}
			signature = signatureOf(content)
		case !strings.HasPrefix(name, "_"): // dpkg ignores only these
			return nil, fmt.Errorf("it is not a .deb: it has the part %q", name)
		}
		if _, err := io.Copy(io.Discard, member); err != nil {
			return nil, err
		}
		if member.N > 0 {
			return nil, errTruncated
		}
		if size%2 == 1 {
			if _, err := r.Discard(1); err != nil && err != io.EOF {
				return nil, err
			}
		}
	}
}

// nextMember reads the header of a member: 60 bytes.
func nextMember(r io.Reader) (name string, size int64, err error) {
	var header [60]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = errTruncated
		}
		return "", 0, err
	}
	size, err = strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
	if err != nil || size < 0 || string(header[58:]) != "`\n" {
		return "", 0, errors.New("it is damaged: a part has no size")
	}
	return strings.TrimSuffix(strings.TrimSpace(string(header[:16])), "/"), size, nil
}

// readControl reads the files control and preinst of the archive control.tar.
func readControl(r io.Reader, extension string) (p *Package, err error) {
	content, err := decompress(r, extension)
	if err != nil {
		return nil, err
	}
	diverts := false
	for t := tar.NewReader(io.LimitReader(content, maxControlTar)); ; {
		h, err := t.Next()
		if err == io.EOF && p != nil {
			p.diverts = diverts
			return p, nil
		}
		if err == io.EOF {
			return nil, errors.New("it has no file control")
		}
		if err != nil {
			return nil, err
		}
		name := path.Clean("/" + h.Name)
		if name != "/control" && name != "/preinst" || h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(t, maxControl+1))
		if err != nil {
			return nil, err
		}
		if name == "/preinst" {
			diverts = bytes.Contains(text, []byte("dpkg-divert"))
			continue
		}
		if len(text) > maxControl {
			return nil, fmt.Errorf("its file control has more than %d bytes", maxControl)
		}
		n := 0
		err = stanzas(bytes.NewReader(text), func(fields map[string]string) (err error) {
			n++
			p, err = fromControl(fields)
			return err
		})
		if err == nil && n != 1 {
			err = fmt.Errorf("its file control describes %d packages", n)
		}
		if err != nil {
			return nil, err
		}
	}
}

// readFiles lists the files of the archive data.tar.
func readFiles(r io.Reader, extension string) (map[string]owned, error) {
	content, err := decompress(r, extension)
	if err != nil {
		return nil, err
	}
	files := map[string]owned{}
	for t := tar.NewReader(content); ; {
		h, err := t.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if len(files) >= maxValues {
			return nil, fmt.Errorf("it has more than %d files", maxValues)
		}
		o := owned{dir: h.Typeflag == tar.TypeDir}
		if h.Typeflag == tar.TypeSymlink { // dpkg accepts two links to one directory
			o.same = "link to " + h.Linkname
		}
		files[path.Join("/", h.Name)] = o
	}
}

func decompress(r io.Reader, extension string) (io.Reader, error) {
	switch extension {
	case "":
		return r, nil
	case ".gz":
		return gzip.NewReader(r)
	case ".bz2":
		return bzip2.NewReader(r), nil
	case ".xz":
		return xz.NewReader(r, maxControlTar) // the only library that limits the memory that a file may ask for
	case ".zst":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20)) // the largest of dpkg-deb
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("its compression %q is not known", extension)
}

// fromControl returns the package that a stanza describes. Its version has no epoch 0, as dpkg records it.
func fromControl(fields map[string]string) (*Package, error) {
	p := &Package{Format: Deb, Name: fields["package"], Version: strings.TrimPrefix(fields["version"], "0:"), Arch: fields["architecture"], multiArch: fields["multi-arch"]}
	p.Source, p.SourceVersion = p.Name, p.Version
	if name, version, ok := strings.Cut(fields["source"], " "); name != "" { // "glibc (2.36-9)", the version only if it differs
		p.Source = name
		if ok {
			p.SourceVersion = strings.Trim(version, "() ")
		}
	}
	var err error
	relations := func(field string) (list []clause) {
		if err == nil {
			if list, err = parseRelations(fields[field]); err != nil {
				err = fmt.Errorf("its field %s: %w", field, err)
			}
		}
		return list
	}
	p.preRequires = relations("pre-depends")
	p.requires = append(p.preRequires[:len(p.preRequires):len(p.preRequires)], relations("depends")...)
	for _, field := range []string{"conflicts", "breaks"} {
		for _, c := range relations(field) {
			p.conflicts = append(p.conflicts, c...)
		}
	}
	for _, c := range relations("provides") {
		p.provides = append(p.provides, c...)
	}
	for _, c := range relations("replaces") {
		p.replaces = append(p.replaces, c...)
	}
	return p, err
}

// relationForm is a relation of a binary package: NAME, NAME:ARCH, NAME (>= VERSION).
var relationForm = regexp.MustCompile(`^([a-z0-9][a-z0-9+.-]*)(?::([a-z0-9-]+))?\s*(?:\(\s*(<<|<=|=|>=|>>|<|>)\s*([^\s()]+)\s*\))?$`)

// parseRelations parses a list such as "libc6 (>= 2.36), default-mta | mail-transport-agent".
func parseRelations(text string) (list []clause, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		var c clause
		for one := range strings.SplitSeq(part, "|") {
			m := relationForm.FindStringSubmatch(strings.TrimSpace(one))
			if m == nil {
				return nil, fmt.Errorf("%q is not a relation", strings.TrimSpace(one))
			}
			op := map[string]string{"<<": "<", "<": "<=", ">>": ">", ">": ">="}[m[3]] // < and > are obsolete forms of <= and >=
			if op == "" {
				op = m[3]
			}
			c = append(c, relation{m[1], m[2], op, m[4]})
		}
		list = append(list, c)
	}
	return list, nil
}

// stanzas calls each with the fields of every stanza, their names in lower case.
func stanzas(r io.Reader, each func(fields map[string]string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxControl)
	fields, last := map[string]string{}, ""
	end := func() error {
		if len(fields) == 0 {
			return nil
		}
		err := each(fields)
		fields, last = map[string]string{}, ""
		return err
	}
	for s.Scan() {
		line := s.Text()
		key, value, ok := strings.Cut(line, ":")
		switch {
		case strings.TrimSpace(line) == "":
			if err := end(); err != nil {
				return err
			}
		case line[0] == ' ' || line[0] == '\t':
			if last == "" {
				return fmt.Errorf("%q continues no field", line)
			}
			fields[last] += " " + strings.TrimSpace(line)
		case line[0] == '#':
		case !ok:
			return fmt.Errorf("%q is not a field", line)
		default:
			last = strings.ToLower(key)
			if _, twice := fields[last]; twice {
				return fmt.Errorf("the field %s is written twice", key)
			}
			fields[last] = strings.TrimSpace(value)
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return end()
}
