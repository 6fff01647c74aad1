package signature_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
)

// writeBundle writes a small bundle.
func writeBundle(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "install")
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none"}
	executables := bundle.Executables{Launcher: []byte("the launcher"), Installer: []byte("the installer")}
	testbundle.WriteFile(t, path, executables, m, bundle.Fastest, nil)
	return path
}

// keyPair writes a key pair without a password and returns the paths.
func keyPair(t *testing.T, dir, name string) (secret, public string) {
	t.Helper()
	secret, public = filepath.Join(dir, name+".key"), filepath.Join(dir, name+".pub")
	if _, err := signature.WriteKeyPair(secret, public, ""); err != nil {
		t.Fatal(err)
	}
	return secret, public
}

func noPassword() (string, error) { return "", errors.New("the password was asked for") }

func sign(t *testing.T, path, secret string) (comment string) {
	t.Helper()
	key, err := signature.ReadSecretKey(secret, noPassword)
	if err != nil {
		t.Fatal(err)
	}
	return signWith(t, path, key)
}

func signWith(t *testing.T, path string, key signature.SecretKey) (comment string) {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if comment, err = signature.Sign(t.Context(), f, key, signature.Path(path), nil); err != nil {
		t.Fatal(err)
	}
	return comment
}

func verify(ctx context.Context, t *testing.T, path, public string) (string, error) {
	t.Helper()
	key, err := signature.ReadPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var read int64
	comment, err := signature.Verify(ctx, io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), path, signature.Path(path), key,
		func(n int64) { read += n })
	if err == nil && read != int64(len(b)) {
		t.Errorf("%d of %d bytes were read", read, len(b))
	}
	return comment, err
}

func TestSignAndVerify(t *testing.T) {
	dir := t.TempDir()
	path := writeBundle(t, dir)
	secret, public := keyPair(t, dir, "site")
	want := sign(t, path, secret)
	got, err := verify(t.Context(), t, path, public)
	if err != nil {
		t.Fatal(err)
	}
	i, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if fields := strings.Split(want, "\t"); len(fields) != 4 || fields[0] != "file:install" || fields[1] != "kubernetes:v1.29.15" || fields[3] != "hashed" {
		t.Errorf("trusted comment %q", want)
	}
	if got != strings.ReplaceAll(want, "\t", " ") {
		t.Errorf("%q is printed for %q", got, want)
	}
	first, err := os.ReadFile(signature.Path(path))
	if err != nil {
		t.Fatal(err)
	}
	sign(t, path, secret)
	if again, _ := os.ReadFile(signature.Path(path)); !bytes.Equal(first, again) {
		t.Errorf("the same file and key gave two signatures:\n%s\n%s", first, again)
	}
	// The key itself is accepted in place of its file.
	text, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify(t.Context(), t, path, strings.Split(string(text), "\n")[1]); err != nil {
		t.Errorf("%d bytes: %v", i.Size(), err)
	}
}

// Every refusal has its own text, and exit code 4.
func TestRefusals(t *testing.T) {
	other := t.TempDir()
	_, otherPublic := keyPair(t, other, "other")
	for name, c := range map[string]struct {
		change func(t *testing.T, path string, content []byte)
		public string // another key
		want   string
	}{
		"unsigned": {func(t *testing.T, path string, _ []byte) { remove(t, signature.Path(path)) }, "",
			"install is not signed: there is no file "},
		"another key":   {func(*testing.T, string, []byte) {}, otherPublic, "is signed with another key: the signature is by key "},
		"one bit":       {func(t *testing.T, path string, b []byte) { b[len(b)/2] ^= 1; write(t, path, b) }, "", "is not the file that was signed: it was changed or damaged"},
		"truncated":     {func(t *testing.T, path string, b []byte) { write(t, path, b[:len(b)-7]) }, "", "the signed file has "},
		"data appended": {func(t *testing.T, path string, b []byte) { write(t, path, append(b, 0)) }, "", "the signed file has "},
		"empty signature": {func(t *testing.T, path string, _ []byte) { write(t, signature.Path(path), nil) }, "",
			"is not a complete minisign signature"},
		"half a signature": {func(t *testing.T, path string, _ []byte) {
			b, _ := os.ReadFile(signature.Path(path))
			write(t, signature.Path(path), b[:len(b)/2])
		}, "", "is not a complete minisign signature"},
		"another trusted comment": {func(t *testing.T, path string, _ []byte) {
			b, _ := os.ReadFile(signature.Path(path))
			write(t, signature.Path(path), bytes.Replace(b, []byte("v1.29.15"), []byte("v1.29.16"), 1))
		}, "", "was changed: it does not match key "},
		"huge signature": {func(t *testing.T, path string, _ []byte) { write(t, signature.Path(path), make([]byte, 1<<20)) }, "",
			"has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := writeBundle(t, dir)
			secret, public := keyPair(t, dir, "site")
			sign(t, path, secret)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c.change(t, path, b)
			if c.public != "" {
				public = c.public
			}
			_, err = verify(t.Context(), t, path, public)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v\nwant %q", err, c.want)
			}
			if fault.ExitCode(err) != fault.Bundle {
				t.Errorf("exit code %d", fault.ExitCode(err))
			}
		})
	}
}

// The error about another key names both.
func TestDescribes(t *testing.T) {
	dir := t.TempDir()
	path := writeBundle(t, dir)
	secret, _ := keyPair(t, dir, "site")
	sign(t, path, secret)
	text, err := os.ReadFile(signature.Path(path))
	if err != nil {
		t.Fatal(err)
	}
	i, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`trusted comment: .*`)
	for name, c := range map[string]struct {
		text             []byte
		kubernetes       string
		size             int64
		describes, known bool
	}{
		"this bundle":     {text, "v1.29.15", i.Size(), true, true},
		"another version": {text, "v1.29.1", i.Size(), false, true},
		"another size":    {text, "v1.29.15", i.Size() + 1, false, true},
		"by minisign":     {comment.ReplaceAll(text, []byte("trusted comment: timestamp:1700000000\tfile:install\thashed")), "v1.29.15", i.Size(), false, false},
		"no signature":    {[]byte("text"), "v1.29.15", i.Size(), false, false},
	} {
		if describes, known := signature.Describes(c.text, c.kubernetes, c.size); describes != c.describes || known != c.known {
			t.Errorf("%s: %v, known: %v", name, describes, known)
		}
	}
}

func TestWrongKeyNamesBothIDs(t *testing.T) {
	dir := t.TempDir()
	path := writeBundle(t, dir)
	secret, public := keyPair(t, dir, "one")
	_, another := keyPair(t, dir, "two")
	sign(t, path, secret)
	_, err := verify(t.Context(), t, path, another)
	for _, name := range []string{public, another} {
		key, kerr := signature.ReadPublicKey(name)
		if kerr != nil {
			t.Fatal(kerr)
		}
		if err == nil || !strings.Contains(err.Error(), key.ID()) {
			t.Errorf("%v does not name key %s", err, key.ID())
		}
	}
}

func TestCancelledVerify(t *testing.T) {
	dir := t.TempDir()
	path := writeBundle(t, dir)
	secret, public := keyPair(t, dir, "site")
	sign(t, path, secret)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := verify(ctx, t, path, public); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	secret, public := keyPair(t, dir, "site")
	for path, want := range map[string]os.FileMode{secret: 0o600, public: 0o644} {
		i, err := os.Stat(path)
		if err != nil || i.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, i.Mode(), err, want)
		}
	}
	// Neither file is overwritten, also if only one exists.
	for _, keep := range []string{secret, public} {
		before, err := os.ReadFile(keep)
		if err != nil {
			t.Fatal(err)
		}
		_, err = signature.WriteKeyPair(secret, public, "")
		if err == nil || !strings.Contains(err.Error(), "keys are not overwritten") || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%v", err)
		}
		if after, _ := os.ReadFile(keep); !bytes.Equal(before, after) {
			t.Errorf("%s was overwritten", keep)
		}
		_ = os.Remove(secret) // then only the public key exists
	}
	if _, err := os.Stat(secret); err == nil {
		t.Error("a secret key was written although its public key could not be")
	}
	list, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(list) > 0 {
		t.Errorf("left behind: %q", list)
	}
}

// Editors and PowerShell write byte order marks and UTF-16.
func TestKeysOfOtherEditors(t *testing.T) {
	dir := t.TempDir()
	_, public := keyPair(t, dir, "site")
	text, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]string{
		"mark":   "\ufeff" + strings.ReplaceAll(string(text), "\n", "\r\n"),
		"UTF-16": "\xff\xfe" + strings.Join(strings.SplitAfter(string(text), ""), "\x00") + "\x00",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(other), 0o644); err != nil {
			t.Fatal(err)
		}
		if key, err := signature.ReadPublicKey(path); err != nil || !strings.Contains(string(text), key.String()) {
			t.Errorf("%s: %v, %v", name, key, err)
		}
	}
}

func TestNoKeys(t *testing.T) {
	dir := t.TempDir()
	secret, public := keyPair(t, dir, "site")
	text := filepath.Join(dir, "text")
	write(t, text, []byte("no key\n"))
	damaged := filepath.Join(dir, "damaged.key")
	b, err := os.ReadFile(secret)
	if err != nil {
		t.Fatal(err)
	}
	// 212 characters in base64: those from 83 on are the key itself.
	at := len(b) - 1 - 212 + 100
	if b[at] == 'A' {
		b[at] = 'B'
	} else {
		b[at] = 'A'
	}
	write(t, damaged, b)
	for path, want := range map[string]string{
		public:                       "is not a minisign secret key",
		text:                         "is not a minisign secret key",
		damaged:                      "is damaged",
		filepath.Join(dir, "absent"): "no such file",
	} {
		if _, err := signature.ReadSecretKey(path, noPassword); err == nil || !strings.Contains(err.Error(), want) || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
	for path, want := range map[string]string{
		secret:                       "is a secret key",
		text:                         "is not a minisign public key",
		filepath.Join(dir, "absent"): "no such file",
	} {
		if _, err := signature.ReadPublicKey(path); err == nil || !strings.Contains(err.Error(), want) || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
