package image

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Store has blobs under blobs/sha256/HEX. Files under layers/ map each layer recipe to its blob.
type Store struct{ Dir string }

// layer is one layer blob.
type layer struct {
	Digest v1.Hash // of the gzip
	DiffID v1.Hash // of the tar
	Size   int64   // of the gzip, in bytes
}

// Blob returns the path for a blob.
func (s *Store) Blob(h v1.Hash) string {
	return filepath.Join(s.Dir, "blobs", h.Algorithm, h.Hex)
}

// layer returns the layer for this key and architecture, and creates it if needed. The same key
// means the same blob, so images share layers.
func (s *Store) layer(ctx context.Context, arch, key string, fill func(context.Context, *tree) error) (layer, error) {
	if arch != "amd64" {
		key = arch + " " + key
	}
	sum := sha256.Sum256([]byte(key))
	record := filepath.Join(s.Dir, "layers", hex.EncodeToString(sum[:])+".json")
	var l layer
	data, err := os.ReadFile(record)
	if err == nil && json.Unmarshal(data, &l) == nil {
		if _, err := os.Stat(s.Blob(l.Digest)); err == nil {
			return l, nil
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	t := newTree(arch)
	if err := fill(ctx, t); err != nil {
		return l, err
	}
	if l, err = s.putLayer(t); err != nil {
		return l, err
	}
	if data, err = json.Marshal(l); err != nil {
		return l, err
	}
	return l, writeFile(record, data)
}

// putLayer stores a tree as a gzip layer with docker's compression level.
func (s *Store) putLayer(t *tree) (layer, error) {
	var l layer
	tmp, err := createTemp(filepath.Join(s.Dir, "blobs", "sha256"))
	if err != nil {
		return l, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()

	digest, diffID := sha256.New(), sha256.New()
	zip := gzip.NewWriter(io.MultiWriter(tmp, digest))
	if err := t.write(io.MultiWriter(zip, diffID)); err != nil {
		return l, err
	}
	if err := zip.Close(); err != nil {
		return l, err
	}
	if l.Size, err = tmp.Seek(0, io.SeekCurrent); err != nil {
		return l, err
	}
	l.Digest, l.DiffID = sum(digest), sum(diffID)
	return l, publish(tmp, s.Blob(l.Digest))
}

// putJSON stores a manifest or a config and returns its bytes.
func (s *Store) putJSON(v any) ([]byte, v1.Hash, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	h := sha256.New()
	h.Write(data)
	digest := sum(h)
	return data, digest, writeFile(s.Blob(digest), data)
}

func sum(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

// writeFile writes a file atomically.
func writeFile(path string, data []byte) error {
	tmp, err := createTemp(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := tmp.Write(data); err != nil {
		return err
	}
	return publish(tmp, path)
}

func createTemp(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, ".writing-")
}

// publish renames a complete temporary file.
func publish(tmp *os.File, path string) error {
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(tmp.Name(), path)
}
