package signature

import (
	"fmt"
	"io"
	"os"
	"strings"

	"aead.dev/minisign"

	"airlift/internal/documents/textfile"
	"airlift/internal/fault"
)

// A PublicKey checks signatures.
type PublicKey struct{ key minisign.PublicKey }

// ID is the key's ID as minisign prints it: 16 hexadecimal digits.
func (k PublicKey) ID() string { return keyID(k.key.ID()) }

// String is the key in one line, as minisign -P takes it.
func (k PublicKey) String() string { return k.key.String() }

func keyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// publicKeyLen is the length of a public key in one line: 42 bytes in base64.
const publicKeyLen = 56

// ReadPublicKey returns the key that value names: a file, or the key itself in one line.
func ReadPublicKey(value string) (PublicKey, error) {
	var k PublicKey
	if len(value) == publicKeyLen && k.key.UnmarshalText([]byte(value)) == nil {
		return k, nil
	}
	text, err := readSmall(value)
	if err != nil {
		return PublicKey{}, fault.New(fault.Usage, "reading the public key: %w", err).Hint("name the file with the public key, such as airlift.pub, or give the key itself: RW…")
	}
	if isSecretKey(text) {
		return PublicKey{}, fault.New(fault.Usage, "%q is a secret key", value).Hint("use the public key, which bundle keygen wrote with the ending .pub")
	}
	if err := k.key.UnmarshalText(text); err != nil {
		return PublicKey{}, fault.New(fault.Usage, "%q is not a minisign public key", value).Hint("use the file with the ending .pub that bundle keygen or minisign -G wrote")
	}
	return k, nil
}

// maxSmall limits the size of keys and signatures in bytes. minisign's own have at most
// 10 kB, nearly all of it comments.
const maxSmall = 64 << 10

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err == nil && len(text) > maxSmall {
		err = fmt.Errorf("%s has more than %d bytes", path, maxSmall)
	}
	return textfile.UTF8(text), err
}

// lastLine returns the line with the key, which follows the comment.
func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
