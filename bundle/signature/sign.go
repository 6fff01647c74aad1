package signature

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"aead.dev/minisign"

	"airlift/bundle"
	"airlift/internal/atomicfile"
	"airlift/internal/interrupt"
)

// Of returns the signature of the bundle f, as the text of a file, and its trusted comment. read is
// called with the number of bytes that were read; it may be nil.
//
// The same file and key give the same signature: the comment has no time.
func Of(ctx context.Context, f *bundle.File, key SecretKey, read func(n int64)) (text []byte, comment string, err error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, "", err
	}
	comment = trustedComment(f.Path(), m.KubernetesVersion, f.Size())
	r := minisign.NewReader(io.TeeReader(interrupt.Reader(ctx, f.Reader()), interrupt.Meter(read)))
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", f.Path(), err)
	}
	text = r.SignWithComments(key.key, comment, "signature of an Airlift bundle, key "+key.ID())
	return text, comment, ctx.Err()
}

// Sign is Of, and writes the signature to path.
func Sign(ctx context.Context, f *bundle.File, key SecretKey, path string, read func(n int64)) (comment string, err error) {
	text, comment, err := Of(ctx, f, key, read)
	if err != nil {
		return "", err
	}
	return comment, atomicfile.Write(path, text, 0o644)
}

// Fields of the trusted comment.
const (
	kubernetesField = "kubernetes:"
	sizeField       = "size:"
)

// trustedComment is what the signature states about the file, in minisign's form: fields
// separated by tabs. "hashed" is minisign's own.
func trustedComment(path, kubernetes string, size int64) string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_' // a line break would end the comment
		}
		return r
	}, filepath.Base(path))
	return fmt.Sprintf("file:%s\t%s%s\t%s%d\thashed", name, kubernetesField, kubernetes, sizeField, size)
}

// Describes reports whether a signature is of a bundle with this Kubernetes version and this size,
// according to its trusted comment, which is not checked. known is false if the text is not a
// signature, or if minisign itself wrote it: minisign's comments do not describe the bundle.
func Describes(text []byte, kubernetes string, size int64) (describes, known bool) {
	var s minisign.Signature
	if err := s.UnmarshalText(text); err != nil {
		return false, false
	}
	signed, known := signedSize(s.TrustedComment)
	return signed == size && slices.Contains(strings.Split(s.TrustedComment, "\t"), kubernetesField+kubernetes), known
}

// SignText returns the signature of a small file that is in memory. The trusted comment has no line breaks.
func SignText(data []byte, key SecretKey, comment string) []byte {
	r := minisign.NewReader(bytes.NewReader(data))
	_, _ = io.Copy(io.Discard, r) // memory has no errors
	return r.SignWithComments(key.key, fmt.Sprintf("%s\t%s%d\thashed", comment, sizeField, len(data)), "signature by Airlift, key "+key.ID())
}
