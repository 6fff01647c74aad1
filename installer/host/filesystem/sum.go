package filesystem

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotRegular reports a directory, a pipe or a device in place of a file.
var ErrNotRegular = errors.New("it exists and is not a regular file")

// Sum is the sha256 of the file at path, or "link to TARGET" for a symbolic
// link, which is not followed.
func Sum(path string) (string, error) {
	target, err := os.Readlink(path)
	if errors.Is(err, unix.EINVAL) { // not a link
		return DigestFile(path)
	}
	return LinkSum(target), err
}

const linkPrefix = "link to "

func LinkSum(target string) string { return linkPrefix + target }

// Look is Sum with the file's mode; "" and nil if there is no file.
func Look(path string) (sum string, info fs.FileInfo, err error) {
	info, err = os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	if err == nil {
		sum, err = Sum(path)
	}
	return sum, info, err
}

func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func DigestFile(path string) (string, error) {
	// Without O_NONBLOCK, opening a pipe would block.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", ErrNotRegular
	}
	return digestOf(f)
}

func digestOf(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// FirstLine reads a small file's first line, trimmed.
func FirstLine(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line), nil
}

func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// IsLink reports whether a sum is the sum of a symbolic link.
func IsLink(sum string) bool { return strings.HasPrefix(sum, linkPrefix) }
