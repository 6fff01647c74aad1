package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"filippo.io/age"
)

const (
	// ageHeader begins each file that age wrote.
	ageHeader = "age-encryption.org/v1\n"
	// MaxFile limits the manifest, and each file but the snapshot.
	MaxFile = 4 << 20
	// maxFiles limits the sum of the files, which Read keeps in memory.
	maxFiles = 64 << 20
)

// A Backup is the content of an archive, without the snapshot.
type Backup struct {
	Manifest  Manifest
	Files     map[string][]byte
	Encrypted bool
}

// Read reads an archive to its end, compares every checksum, and writes the snapshot to w.
// identities decrypt an encrypted one.
func Read(r io.Reader, w io.Writer, identities ...age.Identity) (*Backup, error) {
	plain, encrypted, err := decrypt(bufio.NewReader(r), identities)
	if err != nil {
		return nil, err
	}
	b := &Backup{Files: map[string][]byte{}, Encrypted: encrypted}
	archive, err := begin(plain)
	if err != nil {
		return nil, err
	}
	if err := b.read(archive, w); err != nil {
		return nil, err
	}
	// tar stops before the last bytes. age authenticates the end of the file.
	if _, err := io.Copy(zeros{}, plain); err != nil {
		return nil, readError(err)
	}
	return b, nil
}

// zeros accepts only the zeros with which tar fills its last block.
type zeros struct{}

func (zeros) Write(p []byte) (int, error) {
	if len(bytes.Trim(p, "\x00")) > 0 {
		return 0, fmt.Errorf("%w: it has bytes after its end", ErrDamaged)
	}
	return len(p), nil
}

// ReadManifest reads only the manifest.
func ReadManifest(r io.Reader, identities ...age.Identity) (*Manifest, error) {
	plain, _, err := decrypt(bufio.NewReader(r), identities)
	if err != nil {
		return nil, err
	}
	archive, err := begin(plain)
	if err != nil {
		return nil, err
	}
	return readManifest(archive)
}

// begin returns the archive, if its first entry is the manifest. tar cannot distinguish a file that
// ends early from a short file of another kind.
func begin(plain io.Reader) (*tar.Reader, error) {
	r := bufio.NewReader(plain)
	start, err := r.Peek(len(ManifestName))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, readError(err)
	}
	if string(start) != ManifestName {
		return nil, ErrNotBackup
	}
	return tar.NewReader(r), nil
}

func decrypt(r *bufio.Reader, identities []age.Identity) (io.Reader, bool, error) {
	start, err := r.Peek(len(ageHeader))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if string(start) != ageHeader {
		return r, false, nil
	}
	if len(identities) == 0 {
		return nil, true, ErrEncrypted
	}
	plain, err := age.Decrypt(r, identities...)
	var none *age.NoIdentityMatchError
	switch {
	case errors.As(err, &none):
		return nil, true, ErrOtherKey
	case err != nil:
		return nil, true, readError(err)
	}
	return plain, true, nil
}

// readError finds the kind of an error while reading.
func readError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return ErrTruncated
	case errors.Is(err, tar.ErrHeader), strings.Contains(err.Error(), "decrypt"), strings.Contains(err.Error(), "header"):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

func readManifest(archive *tar.Reader) (*Manifest, error) {
	header, err := archive.Next()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, ErrTruncated
	case err != nil:
		return nil, ErrNotBackup
	case header.Name != ManifestName || header.Size > MaxFile:
		return nil, ErrNotBackup
	}
	data, err := io.ReadAll(archive)
	if err != nil {
		return nil, readError(err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", ErrDamaged, ManifestName, err)
	}
	if m.Format != Format {
		return nil, fmt.Errorf("its format is %d, this installer reads %d", m.Format, Format)
	}
	return m, nil
}

func (b *Backup) read(archive *tar.Reader, w io.Writer) error {
	m, err := readManifest(archive)
	if err != nil {
		return err
	}
	b.Manifest = *m
	if err := m.check(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	for _, e := range m.Entries {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return ErrTruncated
		}
		if err != nil {
			return readError(err)
		}
		if header.Name != e.Name || header.Size != e.Size || !inFull(header) {
			return fmt.Errorf("%w: it has %q with %d bytes, want %q with %d", ErrDamaged, header.Name, header.Size, e.Name, e.Size)
		}
		sum, small := sha256.New(), &bytes.Buffer{}
		to := io.Writer(small)
		if e.Name == SnapshotName {
			to = w
		}
		if _, err := io.Copy(io.MultiWriter(sum, to), archive); err != nil {
			return readError(err)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != e.SHA256 {
			return fmt.Errorf("%w: the sha256 of %s is %s, want %s", ErrDamaged, e.Name, got, e.SHA256)
		}
		if e.Name != SnapshotName {
			b.Files[e.Name] = small.Bytes()
		}
	}
	if _, err := archive.Next(); err != io.EOF {
		if err == nil {
			return fmt.Errorf("%w: it has entries that are not in the manifest", ErrDamaged)
		}
		return readError(err)
	}
	return nil
}

// check refuses entries that Write does not write.
func (m *Manifest) check() error {
	sizes, sum := map[string]int64{}, int64(0)
	for _, e := range m.Entries {
		if _, twice := sizes[e.Name]; twice || path.Clean("/"+e.Name) != "/"+e.Name || e.Name != SnapshotName && (e.Size < 0 || e.Size > MaxFile) {
			return fmt.Errorf("the entry %q is not allowed", e.Name)
		}
		sizes[e.Name] = e.Size
		if e.Name != SnapshotName {
			sum += e.Size
		}
	}
	for _, name := range []string{ConfigName, PKIDir + "ca.crt", SnapshotName} {
		if _, ok := sizes[name]; !ok {
			return fmt.Errorf("it has no %s", name)
		}
	}
	if sum > maxFiles {
		return fmt.Errorf("its files have %d bytes, and at most %d are allowed", sum, maxFiles)
	}
	if sizes[SnapshotName] != m.Snapshot.Size {
		return fmt.Errorf("%s has %d bytes, want %d", SnapshotName, sizes[SnapshotName], m.Snapshot.Size)
	}
	return nil
}

// inFull reports whether all bytes of a file are in the archive. A sparse file can be larger than the archive.
func inFull(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return false
		}
	}
	return h.Typeflag == tar.TypeReg
}
