package signature

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"

	"aead.dev/minisign"

	"airlift/bundle/head"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// Verify compares the content of the file called path with its signature in the file
// signaturePath, which must be by key. read is called with the number of bytes that were
// read; it may be nil. It returns the trusted comment, without control characters.
//
// The errors carry fault.Bundle. It decodes nothing in the file.
func Verify(ctx context.Context, content *io.SectionReader, path, signaturePath string, key PublicKey, read func(n int64)) (comment string, err error) {
	s, err := check(path, signaturePath, key, content.Size()) // before reading gigabytes
	if err != nil {
		return "", err
	}
	h := NewHash()
	whole := io.NewSectionReader(content, 0, content.Size())
	if _, err := io.Copy(io.MultiWriter(h, interrupt.Meter(read)), interrupt.Reader(ctx, whole)); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", head.ReadError(path, err)
	}
	return h.verify(path, s, key)
}

// A Hash computes what a signature signs from the content that is written to it.
type Hash struct {
	next bytes.Reader
	r    *minisign.Reader
	size int64
}

// NewHash returns a Hash of nothing.
func NewHash() *Hash {
	h := &Hash{}
	h.r = minisign.NewReader(&h.next)
	return h
}

// Write adds content. It never fails.
func (h *Hash) Write(b []byte) (int, error) {
	h.next.Reset(b)
	n, err := io.Copy(io.Discard, h.r)
	h.size += n
	return int(n), err
}

// Verify is the function Verify for the content that was written.
func (h *Hash) Verify(path, signaturePath string, key PublicKey) (comment string, err error) {
	s, err := check(path, signaturePath, key, h.size)
	if err != nil {
		return "", err
	}
	return h.verify(path, s, key)
}

// VerifyText checks the signature of a small file that is in memory. Each byte of the signature counts, but for its first comment and the ends of lines.
func VerifyText(data, text []byte, key PublicKey) error {
	var s minisign.Signature
	if len(text) > maxSmall || s.UnmarshalText(text) != nil {
		return fault.New(fault.Bundle, "there is no complete minisign signature").Hint("copy the signature again, or have the file signed again")
	}
	s, err := checkSignature(s, "the file", "of it", key, int64(len(data)))
	if err != nil {
		return err
	}
	h := NewHash()
	if _, err := h.Write(data); err != nil {
		return err
	}
	_, err = h.verify("it", s, key)
	return err
}

func (h *Hash) verify(path string, s minisign.Signature, key PublicKey) (comment string, err error) {
	text, err := s.MarshalText()
	if err != nil {
		return "", err
	}
	if !h.r.Verify(key.key, text) {
		return "", fault.New(fault.Bundle, "%s is not the file that was signed: it was changed or damaged (key %s)", path, key.ID()).
			Hint("do not run it; copy the file again. 'bundle verify FILE' shows accidental damage")
	}
	return printable(s.TrustedComment), nil
}

// check returns the signature of a file of size bytes. It must be by key.
func check(path, signaturePath string, key PublicKey, size int64) (s minisign.Signature, err error) {
	if s, err = readSignature(path, signaturePath); err != nil {
		return s, err
	}
	return checkSignature(s, path, signaturePath, key, size)
}

func checkSignature(s minisign.Signature, path, signaturePath string, key PublicKey, size int64) (minisign.Signature, error) {
	if s.KeyID != key.key.ID() {
		return s, fault.New(fault.Bundle, "%s is signed with another key: the signature is by key %s, required is key %s", path, keyID(s.KeyID), key.ID()).
			Hint("use the public key of the signer, or have the file signed with the required key")
	}
	if s.Algorithm != minisign.HashEdDSA {
		return s, fault.New(fault.Bundle, "the signature %s has minisign's legacy format, which is not prehashed", signaturePath).
			Hint("sign the file again with bundle sign, or with minisign -S without -l")
	}
	if !commentIsSigned(s, key) {
		return s, fault.New(fault.Bundle, "the signature %s was changed: it does not match key %s", signaturePath, key.ID()).
			Hint("copy the signature again, or have the file signed again")
	}
	if signed, ok := signedSize(s.TrustedComment); ok && size != signed {
		return s, fault.New(fault.Bundle, "%s is not the file that was signed: it has %d bytes, the signed file has %d", path, size, signed).
			Hint("copy the file again")
	}
	return s, nil
}

func readSignature(path, signaturePath string) (s minisign.Signature, err error) {
	text, err := readSmall(signaturePath)
	if errors.Is(err, fs.ErrNotExist) {
		return s, fault.New(fault.Bundle, "%s is not signed: there is no file %s", path, signaturePath).
			Hint("copy the signature to " + signaturePath + ", or name it with --signature; to sign a file: bundle sign FILE --key KEY")
	}
	if err != nil {
		return s, fault.New(fault.Bundle, "reading the signature: %w", err)
	}
	if err := s.UnmarshalText(text); err != nil {
		return s, fault.New(fault.Bundle, "%s is not a complete minisign signature", signaturePath).Hint("copy the signature again, or have the file signed again")
	}
	return s, nil
}

// SignedBy returns the ID of the key that, according to the file at path, made the signature in it.
func SignedBy(path string) (id string, ok bool) {
	var s minisign.Signature
	text, err := readSmall(path)
	ok = err == nil && s.UnmarshalText(text) == nil
	return keyID(s.KeyID), ok
}

// IsSigned reports whether a file exists at path, with a signature next to it.
func IsSigned(path string) (bool, error) {
	for _, p := range []string{path, Path(path)} {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

// MayReplace returns an error if the file at path is a signature by another key.
func (k SecretKey) MayReplace(path string) error {
	if by, ok := SignedBy(path); ok && by != k.ID() {
		return fault.New(fault.Usage, "%q is a signature by key %s: one by key %s does not replace it", path, by, k.ID()).Hint("choose another path with --out, or remove it")
	}
	return nil
}

// commentIsSigned reports whether key signed the trusted comment together with the
// signature of the file.
func commentIsSigned(s minisign.Signature, key PublicKey) bool {
	b, err := base64.StdEncoding.DecodeString(key.key.String())
	if err != nil || len(b) < ed25519.PublicKeySize {
		return false
	}
	public := ed25519.PublicKey(b[len(b)-ed25519.PublicKeySize:]) // algorithm and key ID precede it
	return ed25519.Verify(public, fmt.Appendf(s.Signature[:], "%s", s.TrustedComment), s.CommentSignature[:])
}

// signedSize returns the file's size in a trusted comment. Signatures by minisign itself
// have none.
func signedSize(comment string) (size int64, ok bool) {
	for field := range strings.SplitSeq(comment, "\t") {
		if digits, found := strings.CutPrefix(field, sizeField); found {
			size, err := strconv.ParseInt(digits, 10, 64)
			return size, err == nil
		}
	}
	return 0, false
}

// printable replaces tabs and control characters, so that a comment cannot change the
// terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
