package signature

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"aead.dev/minisign"

	"airlift/internal/atomicfile"
	"airlift/internal/fault"
)

// A SecretKey signs files.
type SecretKey struct{ key minisign.PrivateKey }

// ID is the ID of the key pair.
func (k SecretKey) ID() string { return keyID(k.key.ID()) }

// PublicKey is the other half of the key pair.
func (k SecretKey) PublicKey() PublicKey {
	return PublicKey{k.key.Public().(minisign.PublicKey)}
}

// secretKeySize is the size in bytes of a secret key without its base64: algorithms,
// parameters of the encryption, key ID, key, checksum.
const secretKeySize = 158

func isSecretKey(text []byte) bool {
	b, err := base64.StdEncoding.DecodeString(lastLine(text))
	return err == nil && len(b) == secretKeySize
}

// ReadSecretKey reads the secret key in the file at path. It calls password only if the
// key is encrypted.
func ReadSecretKey(path string, password func() (string, error)) (SecretKey, error) {
	text, err := readSmall(path)
	if err != nil {
		return SecretKey{}, fault.New(fault.Usage, "reading the secret key: %w", err).Hint("name the file with the secret key; to create one: bundle keygen")
	}
	if !isSecretKey(text) {
		return SecretKey{}, fault.New(fault.Usage, "%q is not a minisign secret key", path).Hint("name the file with the secret key that bundle keygen or minisign -G wrote")
	}
	text = bytes.TrimSpace(text)
	var k SecretKey
	if !minisign.IsEncrypted(text) {
		if err := k.key.UnmarshalText(text); err != nil {
			return SecretKey{}, fault.New(fault.Usage, "reading the secret key %q: %w", path, err)
		}
		return k, k.check(path)
	}
	p, err := password()
	if err != nil {
		return SecretKey{}, err
	}
	if k.key, err = minisign.DecryptKey(p, text); err != nil {
		return SecretKey{}, fault.New(fault.Failure, "wrong password for the secret key %q, or the file is damaged", path).
			Hint("run the command again with the password that was given when the key was created")
	}
	return k, k.check(path)
}

// check signs and verifies a message. A damaged unencrypted key has no checksum, and its
// signatures would be worthless.
func (k SecretKey) check(path string) error {
	message := []byte("airlift")
	if !minisign.Verify(k.PublicKey().key, message, minisign.SignWithComments(k.key, message, "", "")) {
		return fault.New(fault.Usage, "the secret key %q is damaged", path).Hint("use another copy of the key")
	}
	return nil
}

// WriteKeyPair creates a key pair and writes it to two new files: the secret key, which
// only the owner can read, and the public key. With a password, the secret key is
// encrypted.
func WriteKeyPair(secretPath, publicPath, password string) (PublicKey, error) {
	for _, path := range []string{secretPath, publicPath} {
		if _, err := os.Lstat(path); err == nil {
			return PublicKey{}, exists(path)
		}
	}
	public, secret, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		return PublicKey{}, fmt.Errorf("generating a key pair: %w", err)
	}
	text, err := secret.MarshalText()
	if password != "" {
		text, err = minisign.EncryptKey(password, secret)
	}
	if err != nil {
		return PublicKey{}, fmt.Errorf("encoding the secret key: %w", err)
	}
	if err := writeKey(secretPath, append(text, '\n'), 0o600); err != nil {
		return PublicKey{}, err
	}
	text, err = public.MarshalText()
	if err == nil {
		err = writeKey(publicPath, append(text, '\n'), 0o644)
	}
	if err != nil {
		os.Remove(secretPath)
		return PublicKey{}, err
	}
	return PublicKey{public}, nil
}

func writeKey(path string, content []byte, mode fs.FileMode) error {
	err := atomicfile.WriteNew(path, content, mode)
	if errors.Is(err, fs.ErrExist) {
		return exists(path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func exists(path string) error {
	return fault.New(fault.Usage, "%q exists; keys are not overwritten", path).
		Hint("choose another name with --out, or remove the file if nobody needs the key")
}
