package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/rig"
)

func TestBuildSignVerify(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	s.want(0, "key ID", "keygen", "--no-password")
	s.want(0, "release.pub", "keygen", "--no-password", "--output", "release")
	s.want(fault.Usage, "keys are not overwritten", "keygen", "--no-password")

	s.want(0, "signature   install.minisig", buildArgs(u, "--sign-key", "airlift.key")...)
	s.want(0, "signed by key", "verify", "install", "--key", "airlift.pub")
	s.want(0, "file:install kubernetes:v1.29.15 size:", "verify", "install", "--key", "airlift.pub")
	s.want(fault.Bundle, "signed with another key", "verify", "install", "--key", "release.pub")
	s.want(fault.Bundle, "there is no file elsewhere", "verify", "install", "--key", "airlift.pub", "--signature", "elsewhere")
	s.want(fault.Usage, "--signature needs --key", "verify", "install", "--signature", "elsewhere")
	s.want(fault.Usage, `"airlift.key" is a secret key`, "verify", "install", "--key", "airlift.key")

	s.want(0, "trusted comment", "sign", "install", "--key", "release.key", "--output", "second.minisig")
	s.want(0, "signed by key", "verify", "install", "--key", "release.pub", "--signature", "second.minisig")
	s.want(fault.Usage, "--key is required", "sign", "install")
	s.want(fault.Usage, "is not a minisign secret key", "sign", "install", "--key", "release.pub")
	s.want(fault.Bundle, "is not a bundle", "sign", "release.pub", "--key", "release.key")

	// A signature does not replace what it needs.
	before := s.read("install") + s.read("airlift.key")
	s.want(fault.Usage, `the signature would replace the bundle "install"`, "sign", "install", "--key", "airlift.key", "--output", "./install")
	s.want(fault.Usage, `the signature would replace the secret key "airlift.key"`, "sign", "install", "--key", "airlift.key", "--output", "airlift.key")
	if s.read("install")+s.read("airlift.key") != before {
		t.Error("a refused signature changed a file")
	}

	// A build replaces a signed file only with the same key, or after the signature was removed.
	s.want(fault.Usage, `"install" is signed: only a file that is signed too may replace it`, buildArgs(u)...)
	s.want(fault.Usage, `"install.minisig" is a signature by key `, buildArgs(u, "--sign-key", "release.key")...)
	if s.read("install")+s.read("airlift.key") != before {
		t.Error("a refused build changed a file")
	}
	s.want(0, "", buildArgs(u, "--sign-key", "airlift.key")...)
	if err := os.Remove(filepath.Join(s.dir, "install.minisig")); err != nil {
		t.Fatal(err)
	}
	s.want(0, "", buildArgs(u)...)
	s.want(fault.Bundle, "install is not signed", "verify", "install", "--key", "airlift.pub")

	// A damaged file is not signed.
	s.damage("install")
	s.want(fault.Bundle, "is damaged", "sign", "install", "--key", "airlift.key")
	if _, err := os.Stat(filepath.Join(s.dir, "install.minisig")); err == nil {
		t.Error("a damaged file was signed")
	}
}

// A key that cannot be opened ends the build before the first request.
func TestSignKeyIsOpenedFirst(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	s.want(fault.Usage, "reading the secret key", buildArgs(u, "--sign-key", "absent.key")...)
	s.want(fault.Usage, "--password-file needs --sign-key", buildArgs(u, "--password-file", "stub")...)
	s.want(0, "", "keygen", "--no-password")
	s.want(fault.Usage, "is not a minisign secret key", buildArgs(u, "--sign-key", "airlift.pub")...)
	if _, err := os.Stat(filepath.Join(s.dir, "cache")); err == nil {
		t.Error("the build has begun")
	}
}

// Without a terminal, the password comes from the environment or a file.
func TestPasswords(t *testing.T) {
	s := newShell(t)
	s.want(fault.Usage, "is not a terminal", "keygen")
	s.want(fault.Usage, "exclude each other", "keygen", "--no-password", "--password-file", "password")
	s.want(fault.Usage, "reading the password", "keygen", "--password-file", "absent")
	if err := os.WriteFile(filepath.Join(s.dir, "empty"), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(fault.Usage, "the password is empty", "keygen", "--password-file", "empty")
	if list, _ := filepath.Glob(filepath.Join(s.dir, "*.key")); len(list) > 0 {
		t.Errorf("keys were written: %q", list)
	}
}

// An encrypted key, from the environment and from a file.
func TestEncryptedKey(t *testing.T) {
	rig.Needs(t, "1 GiB of memory for scrypt, and a quarter of a minute")
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	t.Setenv(passwordVariable, "secret words")
	s.want(0, "key ID", "keygen")
	if err := os.WriteFile(filepath.Join(s.dir, "password"), []byte("secret words\r\nnot this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(passwordVariable, "wrong")
	s.want(fault.Failure, "wrong password", buildArgs(u, "--sign-key", "airlift.key")...)
	if _, err := os.Stat(filepath.Join(s.dir, "cache")); err == nil {
		t.Error("the build has begun although the password is wrong")
	}
	s.want(0, "install.minisig", buildArgs(u, "--sign-key", "airlift.key", "--password-file", "password")...)
	s.want(0, "signed by key", "verify", "install", "--key", "airlift.pub")
}

// want runs the command, which must end with the exit code and print text.
func (s shell) want(code fault.Code, text string, args ...string) (output string) {
	s.t.Helper()
	out, errs, got := s.run(args...)
	if got != code || !strings.Contains(out+errs, text) {
		s.t.Errorf("%q: exit code %d, want %d and %q\n%s%s", args, got, code, text, out, errs)
	}
	if code != 0 && !strings.Contains(errs, "\nhint: ") {
		s.t.Errorf("%q: no hint:\n%s", args, errs)
	}
	return out + errs
}

// damage changes a byte in the middle of a file.
func (s shell) damage(name string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o755); err != nil {
		s.t.Fatal(err)
	}
}
