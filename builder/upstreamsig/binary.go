package upstreamsig

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
)

// ErrOther reports a valid signature of another file or image than the one that was wanted. The
// account signs everything that Kubernetes publishes.
var ErrOther = errors.New("the signature is for another release or component")

// releaseFile matches the URL of a binary: version, architecture and name.
var releaseFile = regexp.MustCompile(`^https://dl\.k8s\.io/release/(v[^/]+)/bin/linux/([^/]+)/([^/]+)$`)

// CheckBinary compares a file of size bytes with the URL that it was downloaded from: its component
// and its architecture, which Go records in it, and its version. A signature only names the sha256
// of a binary, so an older binary with its signature is valid under every URL. It returns nil for
// URLs of other sites.
func CheckBinary(file io.ReaderAt, size int64, url string) error {
	m := releaseFile.FindStringSubmatch(url)
	if m == nil {
		return nil
	}
	return checkCommand(file, size, m[3], m[1], m[2])
}

// releaseImage matches the images whose only command has the version of the release: its name and
// the version.
var releaseImage = regexp.MustCompile(`^registry\.k8s\.io/(kube-(?:apiserver|controller-manager|scheduler|proxy)):(v[^@]+)`)

// NamesVersion reports whether CheckLayer can compare the tag of an image with its content.
func NamesVersion(reference string) bool { return releaseImage.MatchString(reference) }

// CheckLayer compares the command of an image in a layer, a tar of size bytes, with the name and the
// tag of the image: a signature of an image has no tag. found is false if another layer has the
// command.
func CheckLayer(layer io.ReaderAt, size int64, reference, arch string) (found bool, err error) {
	m := releaseImage.FindStringSubmatch(reference)
	if m == nil {
		return false, nil
	}
	section := io.NewSectionReader(layer, 0, size)
	for files := tar.NewReader(section); ; {
		h, err := files.Next()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		if h.Typeflag != tar.TypeReg || path.Clean("/"+h.Name) != "/usr/local/bin/"+m[1] {
			continue
		}
		begin, err := section.Seek(0, io.SeekCurrent)
		if err == nil {
			err = checkCommand(io.NewSectionReader(layer, begin, h.Size), h.Size, m[1], m[2], arch)
		}
		if err != nil {
			return true, err
		}
		found = true
	}
}

// checkCommand compares a file with a command of Kubernetes.
func checkCommand(file io.ReaderAt, size int64, name, version, arch string) error {
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
