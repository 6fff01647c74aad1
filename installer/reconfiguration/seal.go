package reconfiguration

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"airlift/internal/fault"
)

// A File is a file of the control planes that a reconfiguration brings: it is on each of them, mode 0600.
type File struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
}

// MaxFiles limits the contents of all files in bytes: a Secret may have 1 MiB, and its values are in base64 twice.
const MaxFiles = 512 << 10

// sealedVersion increases when older installers cannot open what Seal returns.
const sealedVersion = 1

// sealed is what Seal returns, as JSON.
type sealed struct {
	Version int    `json:"version"`
	Key     string `json:"key"` // identifies the key
	Nonce   []byte `json:"nonce"`
	Data    []byte `json:"data"`
}

// Seal encrypts files for a Secret. saKey is the file sa.key, which all control planes have, and etcd does not. So neither a
// copy of etcd's data nor a user who reads Secrets has the files, which may be keys of the encryption of etcd's data. The same
// files and the same key give the same bytes.
func Seal(saKey []byte, files []File) ([]byte, error) {
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	text, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	if len(text) > MaxFiles*4/3 {
		return nil, fault.New(fault.Usage, "the files have more than %d KiB", MaxFiles>>10).Hint("keep what is large in a file of the host that you copy yourself")
	}
	keys, err := deriveKeys(saKey)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, keys.nonce)
	mac.Write(text)
	out := sealed{Version: sealedVersion, Key: keys.id, Nonce: mac.Sum(nil)[:keys.aead.NonceSize()]}
	out.Data = keys.aead.Seal(nil, out.Nonce, text, nil)
	return json.Marshal(out)
}

// Open decrypts what Seal returned.
func Open(saKey, data []byte) (files []File, err error) {
	var in sealed
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, errors.New("it is damaged")
	}
	if in.Version != sealedVersion {
		return nil, fmt.Errorf("its version is %d, this installer reads %d", in.Version, sealedVersion)
	}
	keys, err := deriveKeys(saKey)
	if err != nil {
		return nil, err
	}
	if in.Key != keys.id {
		return nil, errors.New("it is encrypted with another sa.key than this host's")
	}
	if len(in.Nonce) != keys.aead.NonceSize() {
		return nil, errors.New("it is damaged")
	}
	text, err := keys.aead.Open(nil, in.Nonce, in.Data, nil)
	if err != nil {
		return nil, errors.New("it is damaged")
	}
	if err := json.Unmarshal(text, &files); err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Path != path.Clean(f.Path) || !path.IsAbs(f.Path) {
			return nil, fmt.Errorf("it has a file with the path %q", f.Path)
		}
	}
	return files, nil
}

type keys struct {
	id    string
	aead  cipher.AEAD
	nonce []byte
}

// deriveKeys derives keys from a private key.
func deriveKeys(saKey []byte) (k keys, err error) {
	block, _ := pem.Decode(saKey)
	if block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return k, errors.New("sa.key has no private key")
	}
	derive := func(use string, size int) []byte {
		if err != nil {
			return nil
		}
		var key []byte
		key, err = hkdf.Key(sha256.New, block.Bytes, nil, "airlift/v1 files: "+use, size)
		return key
	}
	id, own, nonce := derive("id", 8), derive("encryption", 32), derive("nonce", 32)
	if err != nil {
		return k, err
	}
	gcm, err := aes.NewCipher(own)
	if err != nil {
		return k, err
	}
	aead, err := cipher.NewGCM(gcm)
	return keys{hex.EncodeToString(id), aead, nonce}, err
}

// Replace returns files and more, which replace files at the same paths. It leaves out files that no component of the
// control plane reads any more.
func Replace(files, more []File, used func(path string) bool) (list []File) {
	for _, f := range files {
		if !slices.ContainsFunc(more, func(m File) bool { return m.Path == f.Path }) && used(f.Path) {
			list = append(list, f)
		}
	}
	list = append(list, more...)
	slices.SortFunc(list, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// EqualFiles reports whether two lists have the same files, in any order.
func EqualFiles(a, b []File) bool {
	byPath := func(list []File) []File {
		return slices.SortedFunc(slices.Values(list), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	}
	return slices.EqualFunc(byPath(a), byPath(b), func(a, b File) bool { return a.Path == b.Path && bytes.Equal(a.Data, b.Data) })
}
