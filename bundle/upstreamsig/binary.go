package upstreamsig

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// ErrOther reports a valid signature of another file or image than the one that was wanted. The
// account signs everything that Kubernetes publishes.
var ErrOther = errors.New("the signature is for another release or component")

// releaseFile matches the URL of a binary: version, architecture and name.
var releaseFile = regexp.MustCompile(`^https://dl\.k8s\.io/release/(v[^/]+)/bin/linux/([^/]+)/([^/]+)$`)

// CheckBinary compares a file of size bytes with the URL that it was downloaded from: its component
// and its architecture, which Go records in it, and its version. A signature of a binary only names
// its sha256, so that of an older release is valid for its binary under every URL. It returns nil
// for URLs of other sites.
func CheckBinary(file io.ReaderAt, size int64, url string) error {
	m := releaseFile.FindStringSubmatch(url)
	if m == nil {
		return nil
	}
	version, arch, name := m[1], m[2], m[3]
	info, err := buildinfo.Read(file)
	if err != nil {
		return fmt.Errorf("%w: reading what the file is: %w", ErrOther, err)
	}
	if want := "k8s.io/kubernetes/cmd/" + name; info.Path != want {
		return fmt.Errorf("%w: the file is %.100q, expected %q", ErrOther, info.Path, want)
	}
	for _, s := range info.Settings {
		if s.Key == "GOARCH" && s.Value != arch {
			return fmt.Errorf("%w: the file is for %.100q, expected %q", ErrOther, s.Value, arch)
		}
	}
	// The linker writes the value of -X with a zero byte at its end, which no other string of Go has.
	ok, err := contains(io.NewSectionReader(file, 0, size), []byte(version+"\x00"))
	if err == nil && !ok {
		err = fmt.Errorf("%w: the file is not version %s of %s", ErrOther, version, name)
	}
	return err
}

// contains reports whether r has the bytes.
func contains(r io.Reader, want []byte) (bool, error) {
	buf, kept := make([]byte, 1<<20), 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		have := buf[:kept+n]
		switch {
		case bytes.Contains(have, want):
			return true, nil
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return false, nil
		case err != nil:
			return false, err
		}
		kept = copy(buf, have[len(have)-len(want)+1:])
	}
}
