package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/scripts/fakesites"
)

func TestDeltaAndPatch(t *testing.T) {
	u := fakesites.New(t, "v1.29.15", "v1.29.99")
	s := newShell(t)
	for _, b := range []struct{ version, output string }{{"v1.29.15", "old"}, {"v1.29.99", "new"}} {
		if _, errs, code := s.run(buildArgs(u, "--version", b.version, "--output", b.output, "--compression", "fastest")...); code != 0 {
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
