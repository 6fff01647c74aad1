package lock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	kjson "sigs.k8s.io/json"

	"airlift/internal/atomicfile"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// maxFile is the maximum size of the file in bytes. One with 1000 images has 200 kB.
const maxFile = 16 << 20

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Path returns the path of the lock for the bundle.yaml at path: bundle.lock next to it, or
// app.lock for app.yaml.
func Path(path string) string {
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".lock"
}

// Read reads the file at path. The error of a file that does not exist is fs.ErrNotExist.
func Read(path string) (Platforms, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "create it with bundle update")
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "allow this user to read it")
	}
	l, err := decode(content)
	if err != nil {
		return nil, fault.New(fault.Usage, "reading %s: %w", path, err).Hint("restore the file, or resolve everything again with bundle update")
	}
	return l, nil
}

func decode(content []byte) (Platforms, error) {
	if len(content) > maxFile {
		return nil, fmt.Errorf("the file has more than %d bytes", maxFile)
	}
	// Another version may have other fields.
	var version struct{ FormatVersion int }
	if err := json.Unmarshal(content, &version); err != nil {
		return nil, err
	}
	if _, err := documents.ReadOne(content); err != nil { // for keys that are repeated
		return nil, err
	}
	switch version.FormatVersion {
	case FormatVersion:
		var l Lock
		if err := strictly(content, &l); err != nil {
			return nil, err
		}
		return Platforms{&l}, l.check()
	case SeveralFormatVersion:
		var all several
		if err := strictly(content, &all); err != nil {
			return nil, err
		}
		return all.locks()
	}
	return nil, fmt.Errorf("formatVersion %d is not supported, only %d and %d", version.FormatVersion, FormatVersion, SeveralFormatVersion)
}

// strictly allows no unknown fields, and no names in another case.
func strictly(content []byte, to any) error {
	strict, err := kjson.UnmarshalStrict(content, to)
	return errors.Join(append(strict, err)...)
}

// locks returns the checked locks.
func (s several) locks() (all Platforms, err error) {
	if len(s.Platforms) == 0 {
		return nil, errors.New("the list platforms is empty")
	}
	var errs []error
	for n := range s.Platforms {
		l := &s.Platforms[n]
		switch {
		case l.FormatVersion != 0:
			errs = append(errs, fmt.Errorf("%s has its own formatVersion", l.Platform))
		case all.Of(l.Platform) != nil:
			errs = append(errs, fmt.Errorf("platform %s is listed twice", l.Platform))
		}
		if err := l.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.Platform, err))
		}
		l.FormatVersion = FormatVersion
		all = append(all, l)
	}
	return all, errors.Join(errs...)
}

// check finds entries that pin nothing: a malformed checksum, or two checksums for one name.
func (l *Lock) check() error {
	seen := map[string]bool{}
	var errs []error
	for _, e := range l.entries()[1:] {
		if strings.HasPrefix(e.name, "left out ") {
			continue
		}
		if seen[e.name] {
			errs = append(errs, fmt.Errorf("%s is listed twice", e.name))
		}
		seen[e.name] = true
		if !digest.MatchString(e.sum) {
			errs = append(errs, fmt.Errorf("%s has no sha256, but %q", e.name, e.sum))
		}
	}
	return errors.Join(errs...)
}

// Write replaces the file at path in one step. Equal content is not written again.
func Write(path string, locks ...*Lock) error {
	content, err := Platforms(locks).Encode()
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if i, err := os.Lstat(path); err == nil && !i.Mode().IsRegular() {
		return fault.New(fault.Usage, "cannot write the lock: %q is not a regular file", path).Hint("remove it, or choose another file with --lock")
	}
	if err := atomicfile.Write(path, content, 0o644); err != nil {
		return fault.Wrap(fmt.Errorf("writing %s: %w", path, err), fault.Failure, "choose a file in an existing, writable directory with --lock")
	}
	return nil
}

// Missing reports whether err means that there is no file.
func Missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
