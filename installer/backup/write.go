package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"filippo.io/age"
)

// A File is a small file in the archive.
type File struct {
	Name string
	Data []byte
}

// Write writes an archive with a snapshot, which is a file because it may be large, and
// other files. It sets the manifest's format and entries. With recipients it is encrypted.
func Write(w io.Writer, m Manifest, snapshot string, files []File, recipients ...age.Recipient) error {
	if len(recipients) == 0 {
		return write(w, m, snapshot, files)
	}
	encrypted, err := age.Encrypt(w, recipients...)
	if err != nil {
		return fmt.Errorf("encrypting: %w", err)
	}
	if err := write(encrypted, m, snapshot, files); err != nil {
		return err
	}
	return encrypted.Close() // writes the last part
}

func write(w io.Writer, m Manifest, snapshot string, files []File) error {
	m.Format, m.Created = Format, m.Created.UTC().Truncate(time.Second)
	data, err := os.Open(snapshot)
	if err != nil {
		return err
	}
	defer data.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, data)
	if err != nil {
		return err
	}
	m.Entries = nil
	for _, f := range files {
		s := sha256.Sum256(f.Data)
		m.Entries = append(m.Entries, Entry{f.Name, int64(len(f.Data)), hex.EncodeToString(s[:])})
	}
	m.Entries = append(m.Entries, Entry{SnapshotName, size, hex.EncodeToString(sum.Sum(nil))})
	if err := m.check(); err != nil { // Read would refuse it
		return err
	}
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	add := func(name string, size int64, r io.Reader) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: m.Created, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := io.Copy(archive, r)
		return err
	}
	manifest = append(manifest, '\n')
	if err := add(ManifestName, int64(len(manifest)), bytes.NewReader(manifest)); err != nil {
		return err
	}
	for _, f := range files {
		if err := add(f.Name, int64(len(f.Data)), bytes.NewReader(f.Data)); err != nil {
			return err
		}
	}
	if _, err := data.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := add(SnapshotName, size, data); err != nil {
		return err
	}
	return archive.Close()
}
