package delta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	kjson "sigs.k8s.io/json"

	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

const (
	magic         = "AIRLIFT~" // a bundle's header has < and its trailer >
	formatVersion = 1
	preludeSize   = len(magic) + 8 // with the format version and the size of the header
	maxHeader     = 16 << 20
	maxSize       = 1 << 40
)

// A Header is at the beginning of a delta.
type Header struct {
	FormatVersion int    `json:"formatVersion"`
	Bundle        string `json:"bundle"` // the version of the command that made the delta
	Old           Side   `json:"old"`
	New           Side   `json:"new"`
	// Compression is the level at which New was compressed: a name of bundle.Levels.
	Compression string    `json:"compression"`
	Contents    []Content `json:"contents"`
}

// A Side is one of the two bundles.
type Side struct {
	KubernetesVersion string `json:"kubernetesVersion"`
	Size              int64  `json:"size"`          // bytes
	DigestsSHA256     string `json:"digestsSHA256"` // of the payload, as in the trailer
	SHA256            string `json:"sha256,omitempty"`
}

// String names a bundle so that a person can find its file.
func (s Side) String() string {
	return fmt.Sprintf("Kubernetes %s, %d bytes, digests %.12s", s.KubernetesVersion, s.Size, s.DigestsSHA256)
}

// A Content is an entry that the older bundle does not have.
type Content struct {
	Name      string `json:"name"` // of the entry, or launcherName
	Size      int64  `json:"size"` // bytes
	Reference string `json:"reference,omitempty"`
	// The sizes of its three zstd frames in the delta, in bytes.
	Steps    int64 `json:"steps"`
	Added    int64 `json:"added"`
	Inserted int64 `json:"inserted"`
	offset   int64
}

// launcherName is the name of the launcher, which is not an entry.
const launcherName = "launcher"

// A File is an open delta.
type File struct {
	Header
	path string
	file *os.File
}

// Open opens a delta, and compares it with its checksum.
func Open(ctx context.Context, path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Bundle, "")
	}
	d := &File{path: path, file: f}
	if err := d.read(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// Close closes the file.
func (d *File) Close() error { return d.file.Close() }

func (d *File) damaged(format string, args ...any) error {
	return fault.New(fault.Bundle, "reading %s: "+format, append([]any{d.path}, args...)...).Hint("copy the delta again, and compare its sha256 with the original's")
}

func (d *File) read(ctx context.Context) error {
	i, err := d.file.Stat()
	if err != nil {
		return fault.Wrap(err, fault.Bundle, "")
	}
	b := make([]byte, preludeSize)
	if n, err := d.file.ReadAt(b, 0); n < len(magic) || string(b[:len(magic)]) != magic {
		if err != nil && !errors.Is(err, io.EOF) {
			return fault.Wrap(err, fault.Bundle, "")
		}
		return fault.New(fault.Usage, "%s is not a delta", d.path).Hint("name a file that bundle delta wrote")
	}
	if v := binary.LittleEndian.Uint32(b[len(magic):]); v != formatVersion {
		return fault.New(fault.Bundle, "%s has format version %d, this command reads version %d", d.path, v, formatVersion).Hint("use the version of bundle that created the delta")
	}
	size := int64(binary.LittleEndian.Uint32(b[len(magic)+4:]))
	body := int64(preludeSize) + size
	if size > maxHeader || body+sha256.Size > i.Size() {
		return d.damaged("it is truncated: %d bytes", i.Size())
	}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.Copy(sum, interrupt.Reader(ctx, io.NewSectionReader(d.file, 0, i.Size()-sha256.Size))); err != nil {
		return fault.Wrap(err, fault.Bundle, "")
	}
	if _, err := d.file.ReadAt(want, i.Size()-sha256.Size); err != nil {
		return fault.Wrap(err, fault.Bundle, "")
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return d.damaged("it is damaged or truncated: its sha256 does not match")
	}
	header := make([]byte, size)
	if _, err := d.file.ReadAt(header, int64(preludeSize)); err != nil {
		return fault.Wrap(err, fault.Bundle, "")
	}
	if strict, err := kjson.UnmarshalStrict(header, &d.Header); err != nil || len(strict) > 0 {
		return d.damaged("its header: %w", errors.Join(append(strict, err)...))
	}
	if err := d.validate(body, i.Size()-sha256.Size); err != nil {
		return d.damaged("its header: %w", err)
	}
	return nil
}

var hexDigits = regexp.MustCompile(`^[0-9a-f]{64}$`)

// validate checks the header, whose contents are between two offsets of the file, and sets the
// offsets of the contents.
func (d *File) validate(begin, end int64) error {
	switch {
	case d.FormatVersion != formatVersion:
		return fmt.Errorf("format version %d", d.FormatVersion)
	case !hexDigits.MatchString(d.Old.DigestsSHA256) || !hexDigits.MatchString(d.New.DigestsSHA256) || !hexDigits.MatchString(d.New.SHA256):
		return errors.New("a sha256 does not have 64 digits")
	case d.New.Size < 0 || d.New.Size > maxSize:
		return fmt.Errorf("the new bundle has %d bytes", d.New.Size)
	}
	if _, err := bundle.ParseLevel(d.Compression); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range d.Contents {
		c := &d.Contents[i]
		if seen[c.Name] {
			return fmt.Errorf("%q is listed twice", c.Name)
		}
		seen[c.Name] = true
		if c.Size < 0 || c.Size > maxSize {
			return fmt.Errorf("%q has %d bytes", c.Name, c.Size)
		}
		c.offset = begin
		for _, n := range []int64{c.Steps, c.Added, c.Inserted} {
			if n < 0 || n > end-begin {
				return fmt.Errorf("%q is not within the file", c.Name)
			}
			begin += n
		}
	}
	if begin != end {
		return fmt.Errorf("%d bytes belong to no entry", end-begin)
	}
	return nil
}

func (d *File) content(name string) *Content {
	for i := range d.Contents {
		if d.Contents[i].Name == name {
			return &d.Contents[i]
		}
	}
	return nil
}

func write(w io.Writer, h Header, body io.Reader) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxHeader {
		return fmt.Errorf("the header has %d bytes, more than the %d allowed", len(text), maxHeader)
	}
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	prelude := binary.LittleEndian.AppendUint32([]byte(magic), formatVersion)
	prelude = binary.LittleEndian.AppendUint32(prelude, uint32(len(text)))
	if _, err := io.Copy(out, io.MultiReader(bytes.NewReader(prelude), bytes.NewReader(text), body)); err != nil {
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

func side(f *bundle.File) (Side, error) {
	m, err := f.Manifest()
	if err != nil {
		return Side{}, err
	}
	return Side{KubernetesVersion: m.KubernetesVersion, Size: f.Size(), DigestsSHA256: f.DigestsSHA256()}, nil
}

func sum(ctx context.Context, f *bundle.File) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, interrupt.Reader(ctx, f.Reader()))
	return hex.EncodeToString(h.Sum(nil)), err
}

func (s Side) is(f *bundle.File) bool {
	return f.Size() == s.Size && f.DigestsSHA256() == s.DigestsSHA256
}
