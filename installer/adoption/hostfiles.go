package adoption

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"airlift/installer/pki"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// hostFiles are the files of a host. What cannot be read is in unread.
type hostFiles struct {
	files  rooted
	unread []Unread
}

func filesOf(root fs.FS) *hostFiles { return &hostFiles{files: rooted{root}} }

// err returns the first input that could not be read as an error.
func (h *hostFiles) err() error {
	if len(h.unread) == 0 {
		return nil
	}
	return fault.New(fault.Preflight, "reading %s: %s", h.unread[0].What, h.unread[0].Why).Hint("make it readable for root, or correct it")
}

// cannotRead records an input that cannot be read.
func (h *hostFiles) cannotRead(what string, err error) {
	h.unread = append(h.unread, Unread{what, err.Error()})
}

// read returns a file of the host. A file that does not exist is nil.
func (h *hostFiles) read(file string) []byte {
	data, err := fs.ReadFile(h.files, inRoot(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		h.cannotRead(file, err)
		return nil
	}
	if data == nil {
		data = []byte{}
	}
	return data
}

// text returns the text of a short file, without the end of its line.
func (h *hostFiles) text(file string) string { return strings.TrimSpace(string(h.read(file))) }

// document returns a YAML file of the host; nil if it does not exist.
func (h *hostFiles) document(file string) map[string]any { return h.decode(file, h.read(file)) }

// decode decodes the YAML of a file or an object; nil if there is none, or if it cannot be read.
func (h *hostFiles) decode(what string, data []byte) (fields map[string]any) {
	if data == nil {
		return nil
	}
	if err := documents.Unmarshal(data, &fields); err != nil {
		h.cannotRead(what, err)
		return nil
	}
	return fields
}

// exists reports whether the host has a file or a directory.
func (h *hostFiles) exists(file string) bool {
	_, err := fs.Stat(h.files, inRoot(file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.cannotRead(file, err)
	}
	return err == nil
}

// list returns the names in a directory that do not begin with a dot, without directories.
func (h *hostFiles) list(dir string) (names []string) {
	entries, err := fs.ReadDir(h.files, inRoot(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		h.cannotRead(dir, err)
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if info, err := fs.Stat(h.files, inRoot(path.Join(dir, e.Name()))); err == nil && info.IsDir() {
			continue
		}
		names = append(names, e.Name())
	}
	return names
}

// certificate returns the first certificate of a file; nil if it does not exist: another check reports that.
func (h *hostFiles) certificate(file string) *x509.Certificate {
	if file == "" {
		return nil
	}
	data := h.read(file)
	if data == nil {
		return nil
	}
	certs, err := pki.ParseCertificates(data)
	if err != nil {
		h.cannotRead(file, err)
		return nil
	}
	return certs[0]
}

// inHosts reports whether /etc/hosts has an address of a name.
func (h *hostFiles) inHosts(name string) bool {
	for is := range strings.Lines(string(h.read("/etc/hosts"))) {
		is, _, _ = strings.Cut(is, "#")
		if words := strings.Fields(is); len(words) > 1 && slices.Contains(words[1:], name) {
			return true
		}
	}
	return false
}

// glob returns the paths of files with a pattern, which is correct. What cannot be read is not among them.
func (h *hostFiles) glob(pattern string) (files []string) {
	found, _ := fs.Glob(h.files, inRoot(pattern))
	for _, name := range found {
		files = append(files, "/"+name)
	}
	return files
}

// checksum returns the sha256 of a file; "" for something else than a file.
func (h *hostFiles) checksum(file string) (string, error) {
	f, err := h.files.Open(inRoot(file))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// inRoot returns an absolute path in the form of io/fs.
func inRoot(file string) string { return cmp.Or(strings.TrimPrefix(path.Clean(file), "/"), ".") }
