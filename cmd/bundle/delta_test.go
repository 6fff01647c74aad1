package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

func TestDeltaAndPatch(t *testing.T) {
	u := fakesites.New(t, "v1.29.15", "v1.29.99")
	s := newShell(t)
	for _, b := range []struct{ version, output string }{{"v1.29.15", "old"}, {"v1.29.99", "new"}} {
		if _, errs, code := s.run(buildArgs(u, "--version", b.version, "--output", b.output)...); code != 0 {
			t.Fatalf("build: %d, %s", code, errs)
		}
	}
	out, errs, code := s.run("delta", "old", "new")
	if code != 0 || !strings.Contains(out, "new.delta: ") || !strings.Contains(out, "Kubernetes v1.29.15") {
		t.Fatalf("delta: %d, %s%s", code, out, errs)
	}
	read := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := read("new")
	if out, errs, code := s.run("patch", "old", "new.delta", "--output", "result"); code != 0 || !strings.Contains(out, "Kubernetes v1.29.99") {
		t.Fatalf("patch: %d, %s%s", code, out, errs)
	}
	if !bytes.Equal(read("result"), want) {
		t.Error("the result of patch is not the new bundle")
	}
	if i, err := os.Stat(filepath.Join(s.dir, "result")); err != nil || i.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v: it cannot be run", i.Mode(), err)
	}
	for _, c := range []struct {
		args []string
		code fault.Code
		want string
	}{
		{[]string{"delta", "old", "new", "--output", "old"}, fault.Usage, "would replace the bundle"},
		{[]string{"delta", "old"}, fault.Usage, "accepts 2 arg(s)"},
		{[]string{"delta", "old", "absent"}, fault.Bundle, "absent"},
		{[]string{"patch", "new", "new.delta", "--output", "other"}, fault.Usage, "needs another older bundle"},
		{[]string{"patch", "old", "new", "--output", "other"}, fault.Usage, "is not a delta"},
		{[]string{"patch", "old", "new.delta", "--output", "new.delta"}, fault.Usage, "would replace the delta"},
		{[]string{"patch", "new", "new.delta"}, fault.Usage, "would replace new"},
	} {
		if _, errs, code := s.run(c.args...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "other")); err == nil {
		t.Error("a refused patch wrote its result")
	}
}

// A patch in place removes the older bundle's files next to the bundle, and keeps files that were
// copied there for the new bundle.
func TestPatchInPlace(t *testing.T) {
	u := fakesites.New(t, "v1.29.15", "v1.29.99")
	s := newShell(t)
	s.want(0, "", "keygen", "--no-password")
	for _, b := range []struct{ version, output string }{{"v1.29.15", "old"}, {"v1.29.99", "new"}} {
		s.want(0, "", buildArgs(u, "--version", b.version, "--output", b.output, "--sbom", "spdx-json,cyclonedx-json", "--sign-key", "airlift.key")...)
	}
	s.want(0, "", "delta", "old", "new")
	sides := []string{".minisig", ".provenance.json", ".spdx.json", ".cdx.json"}
	copyFile := func(from, to string) {
		t.Helper()
		s.writeAll(map[string]string{to: s.read(from)})
	}

	// Nothing is replaced, so nothing is removed.
	for _, side := range sides {
		copyFile("old"+side, "fresh"+side)
	}
	out := s.want(0, "", "patch", "old", "new.delta", "--output", "fresh")
	if strings.Contains(out, "was removed") || s.read("fresh.minisig") != s.read("old.minisig") {
		t.Errorf("a file next to the result changed:\n%s", out)
	}

	// The bundle that is replaced has its files, except for a signature of the new one.
	for _, side := range append([]string{""}, sides...) {
		copyFile("old"+side, "install"+side)
		copyFile("old"+side, "other"+side)
	}
	copyFile("new.minisig", "install.minisig")
	out = s.want(0, "Kubernetes v1.29.99", "patch", "install", "new.delta", "--output", "install", "--key", "airlift.pub")
	if s.read("install") != s.read("new") || s.read("install.minisig") != s.read("new.minisig") {
		t.Error("the bundle or its signature is not the new one")
	}
	for _, side := range sides[1:] {
		if _, err := os.Stat(filepath.Join(s.dir, "install"+side)); err == nil || !strings.Contains(out, "install"+side+" was removed: it was of the replaced bundle\n") {
			t.Errorf("%s of the replaced bundle: %v\n%s", side, err, out)
		}
	}
	s.want(0, "signed by key", "verify", "install", "--key", "airlift.pub")

	// And with the new bundle's provenance and SBOM, but the older signature.
	for _, side := range sides[1:] {
		copyFile("new"+side, "other"+side)
	}
	out = s.want(0, "other.minisig was removed: it was of the replaced bundle\n", "patch", "other", "new.delta", "--output", "other", "--key", "airlift.pub", "--signature", "new.minisig")
	for _, side := range sides {
		if s.read("other"+side) != s.read("new"+side) {
			t.Errorf("%s is not that of the new bundle", side)
		}
	}
	if strings.Count(out, "was removed") != 1 || !strings.Contains(out, "other.minisig was copied from new.minisig\n") {
		t.Errorf("the older signature:\n%s", out)
	}

	// A signature by minisign does not describe its bundle.
	copyFile("old", "by-minisign")
	s.writeAll(map[string]string{"by-minisign.minisig": "not known\n"})
	s.want(0, "by-minisign.minisig was kept: remove it if it is of the replaced bundle\n", "patch", "by-minisign", "new.delta", "--output", "by-minisign", "--key", "airlift.pub", "--signature", "new.minisig")
	if s.read("by-minisign.minisig") != s.read("new.minisig") {
		t.Error("the signature is not that of the new bundle")
	}
}

// A delta by somebody else never replaces a signed file, whatever is next to it.
func TestForgedDelta(t *testing.T) {
	u := fakesites.New(t, "v1.29.15", "v1.29.99")
	s := newShell(t)
	s.want(0, "", "keygen", "--no-password")
	s.want(0, "", "keygen", "--no-password", "--output", "attacker")
	s.want(0, "", buildArgs(u, "--version", "v1.29.15", "--output", "old", "--sign-key", "airlift.key")...)
	s.want(0, "", buildArgs(u, "--version", "v1.29.99", "--output", "evil", "--sign-key", "attacker.key")...)
	s.want(0, "", "delta", "old", "evil", "--output", "new.delta")
	old, sig := s.read("old"), s.read("old.minisig")
	for _, c := range []struct {
		code fault.Code
		want string
		args []string
	}{
		{fault.Usage, `"old" is signed: only a file that is signed too may replace it`, nil},
		{fault.Bundle, "is not the file that was signed", []string{"--key", "airlift.pub"}},
		{fault.Bundle, "signed with another key", []string{"--key", "airlift.pub", "--signature", "evil.minisig"}},
		{fault.Bundle, "is not signed", []string{"--key", "airlift.pub", "--signature", "absent"}},
		{fault.Bundle, "older than the required v1.30.0", []string{"--key", "attacker.pub", "--signature", "evil.minisig", "--require-version", "v1.30.0"}},
	} {
		s.want(c.code, c.want, append([]string{"patch", "old", "new.delta", "--output", "old"}, c.args...)...)
		if s.read("old") != old || s.read("old.minisig") != sig {
			t.Fatalf("%q: the signed file changed", c.args)
		}
	}
	if list, _ := filepath.Glob(filepath.Join(s.dir, ".*partial*")); len(list) > 0 {
		t.Errorf("left behind: %q", list)
	}
}
