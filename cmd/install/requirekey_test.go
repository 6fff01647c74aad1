package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/bundle/signature"
)

// A required key stops every command before it does anything else, unless the file is
// signed by it.
func TestRequireKey(t *testing.T) {
	path := bundleFile(t, "v1.29.15")
	dir := t.TempDir()
	public := signedBy(t, path, filepath.Join(dir, "site"), signature.Path(path))
	other := signedBy(t, path, filepath.Join(dir, "other"), filepath.Join(dir, "other.minisig"))

	check := func(code int, want string, args ...string) {
		t.Helper()
		out, got := runBundle(t, path, args...)
		if got != code || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", args, got, code, want, out)
		}
		if code != 0 && !strings.Contains(out, "\nhint: ") {
			t.Errorf("%q: no hint:\n%s", args, out)
		}
	}
	check(0, "kubernetes:v1.29.15", "version", "--require-key", public)
	check(0, "signed by key", "token", "generate", "--require-key", public) // also where nothing else opens the file
	check(0, "signed by key", "version", "--require-key", other, "--signature", filepath.Join(dir, "other.minisig"))
	check(4, "signed with another key", "version", "--require-key", other)
	check(4, "signed with another key", "init", "--require-key", other)
	check(4, "there is no file", "join", "192.0.2.1:6443", "--require-key", public, "--signature", filepath.Join(dir, "absent"))
	check(2, "--signature needs --require-key", "version", "--signature", "x")
	check(2, "reading the public key", "version", "--require-key", filepath.Join(dir, "absent"))
	check(2, "is a secret key", "version", "--require-key", filepath.Join(dir, "site.key"))

	must(t, os.Remove(signature.Path(path)))
	check(4, "is not signed", "version", "--require-key", public)
}

// A file that was changed after it was signed is refused, also where nothing reads the
// changed byte.
func TestRequireKeyFindsAChange(t *testing.T) {
	path := bundleFile(t, "v1.29.15")
	public := signedBy(t, path, filepath.Join(t.TempDir(), "site"), signature.Path(path))
	b, err := os.ReadFile(path)
	must(t, err)
	f, err := bundle.Open(path)
	must(t, err)
	last := f.Launcher().Size() - 1 // the kernel does not load it
	must(t, f.Close())
	b[last] ^= 1
	must(t, os.WriteFile(path, b, 0o755))
	if out, code := runBundle(t, path, "version"); code != 0 {
		t.Fatalf("the byte is read: %d\n%s", code, out)
	}
	if out, code := runBundle(t, path, "version", "--require-key", public); code != 4 || !strings.Contains(out, "changed or damaged") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// signedBy signs a bundle with a new key pair and returns the path of the public key.
func signedBy(t *testing.T, path, key, signaturePath string) (public string) {
	t.Helper()
	public = key + ".pub"
	_, err := signature.WriteKeyPair(key+".key", public, "")
	must(t, err)
	secret, err := signature.ReadSecretKey(key+".key", nil)
	must(t, err)
	f, err := bundle.Open(path)
	must(t, err)
	defer f.Close()
	_, err = signature.Sign(t.Context(), f, secret, signaturePath, nil)
	must(t, err)
	return public
}
