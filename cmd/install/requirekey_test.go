package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"airlift/bundle"
	"airlift/bundle/blobs"
	"airlift/bundle/signature"
	"airlift/installer/host/filesystem"
	"airlift/internal/fault"
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
	check(0, "signed by key", "version", "--require-key", public, "--require-version", "v1.29.15")
	check(0, "signed by key", "version", "--require-key", public, "--require-version", "v1.28.99")
	check(4, "has Kubernetes v1.29.15, which is older than the required v1.29.16", "init", "--require-key", public, "--require-version", "v1.29.16")
	check(4, "older than the required v1.30.0", "upgrade", "plan", "--require-version", "1.30.0")
	check(2, "is not a full Kubernetes version", "version", "--require-version", "1.30")
	check(4, "there is no file", "join", "192.0.2.1:6443", "--require-key", public, "--signature", filepath.Join(dir, "absent"))
	check(2, "--signature needs --require-key", "version", "--signature", "x")
	check(2, "--require-key is empty", "version", "--require-key", "")
	check(2, "--require-version is empty", "upgrade", "plan", "--require-key", public, "--require-version=")
	check(2, "--signature is empty", "version", "--require-key", public, "--signature", "")
	check(2, "--ca-cert-hash is empty", "etcd", "restore", filepath.Join(dir, "absent"), "--ca-cert-hash", "")
	check(2, "--discovery-token-ca-cert-hash is empty", "join", "192.0.2.1:6443", "--discovery-token-ca-cert-hash", "")
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

// What was checked is what is used: a file that is changed after its signature was checked, under
// its name or in place, is not used.
func TestRequireKeyKeepsWhatWasChecked(t *testing.T) {
	genuine := bundleFile(t, "v1.29.15")
	public := signedBy(t, genuine, filepath.Join(t.TempDir(), "site"), signature.Path(genuine))
	forged, err := os.ReadFile(bundleFile(t, "v1.29.16"))
	must(t, err)
	// The signature is read after the file was opened, and before it is used.
	text, err := os.ReadFile(signature.Path(genuine))
	must(t, err)
	fifo := filepath.Join(t.TempDir(), "signature")
	must(t, syscall.Mkfifo(fifo, 0o600))
	replaced := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err == nil {
			err = errors.Join(os.WriteFile(genuine+".new", forged, 0o755), os.Rename(genuine+".new", genuine))
			_, werr := w.Write(text)
			err = errors.Join(err, werr, w.Close())
		}
		replaced <- err
	}()
	out, code := runBundle(t, genuine, "version", "--output", "short", "--require-key", public, "--signature", fifo)
	must(t, <-replaced)
	if code == 0 && !strings.Contains(out, "v1.29.15") || strings.Contains(out, "v1.29.16") {
		t.Errorf("under its name: exit code %d, and the other file is used:\n%s", code, out)
	}
}

// The same for a change in place, wherever the command opens its file again.
func TestFileChangesWhileItIsUsed(t *testing.T) {
	before := bundleFile(t, "v1.29.15")
	after, err := os.ReadFile(bundleFile(t, "v1.29.16"))
	must(t, err)
	public := signedBy(t, before, filepath.Join(t.TempDir(), "site"), signature.Path(before))
	file, err := os.OpenFile(before, os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	saved := own
	own = ownBundle{file: file, path: before}
	defer func() { own = saved }()
	cmd := newRootCmd()
	cmd.SetContext(t.Context())
	cmd.SetErr(io.Discard)
	must(t, (&requiredKey{key: public}).check(cmd))
	own.unpacked = true // by a launcher that read another file
	if err := (&requiredKey{key: public}).check(cmd); err == nil || !strings.Contains(err.Error(), "was changed after it was started") {
		t.Errorf("another installer is running: %v", err)
	}
	f, err := openBundle()
	must(t, err)
	must(t, f.Close())
	_, err = file.WriteAt(after, 0)
	must(t, err)
	must(t, file.Truncate(int64(len(after))))
	if f, err := openBundle(); err == nil || fault.ExitCode(err) != fault.Bundle || !strings.Contains(err.Error(), "was changed while this command was running") {
		t.Errorf("the changed file is used: %v, %v", f, err)
	}
}

// No output of a command replaces the bundle that it runs from.
func TestOutputsKeepTheBundle(t *testing.T) {
	path := bundleFile(t, "v1.29.15")
	before, err := os.ReadFile(path)
	must(t, err)
	for _, args := range [][]string{
		{"init", "--timeline", path},
		{"config", "migrate", "--old-config", "/dev/null", "--new-config", path},
	} {
		out, code := runBundle(t, path, args...)
		if after, err := os.ReadFile(path); err != nil || code == 0 || !bytes.Equal(before, after) {
			t.Errorf("%q: exit code %d, %v\n%s", args, code, err, out)
		}
	}
	f, err := bundle.Open(path)
	must(t, err)
	defer f.Close()
	b, err := blobs.Open(f, nil)
	must(t, err)
	cmd := newRootCmd()
	cmd.SetErr(io.Discard)
	for what, err := range map[string]error{"images export": exportImages(t.Context(), cmd, b, nil, path), "other outputs": filesystem.WriteOutput(path, []byte("text"), 0o600)} {
		if err == nil || !strings.Contains(err.Error(), "is a bundle: it is not replaced") {
			t.Errorf("%s: %v", what, err)
		}
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
