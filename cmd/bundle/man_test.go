package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
)

// The real man reads the pages without a warning, and shows what --help shows.
func TestMan(t *testing.T) {
	s := newShell(t)
	if out, errs, code := s.run("man", "pages"); out != "" || errs != "" || code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	pages, err := filepath.Glob(filepath.Join(s.dir, "pages", "bundle*.1"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{".TH BUNDLE", ".SH NAME\nbundle", ".SH SYNOPSIS\n.B bundle", ".SH DESCRIPTION\n", ".SH SEE ALSO\n"} {
			if !strings.Contains(string(b), section) {
				t.Errorf("%s: no %q", page, section)
			}
		}
	}
	man, err := exec.LookPath("man")
	if err != nil {
		return // the pages were written; nothing here can read them
	}
	c := exec.Command(man, "--local-file", "--warnings=w", filepath.Join(s.dir, "pages", "bundle-split.1"))
	c.Env = append(os.Environ(), "MANWIDTH=200", "LC_ALL=C.UTF-8", "MANPAGER=cat")
	out, err := c.CombinedOutput()
	if err != nil || strings.Contains(string(out), "warning:") || !strings.Contains(string(out), "--size") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestVersionJSON(t *testing.T) {
	out, errs, code := newShell(t).run("version", "-o", "json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || errs != "" {
		t.Fatalf("%v, exit code %d: %s%s", err, code, out, errs)
	}
	text, _, _ := newShell(t).run("version")
	for _, want := range []string{"bundle " + v.Version + " (" + v.Go + ", " + v.Platform + ")\n", "Kubernetes " + v.Oldest + " to " + v.Newest + "\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if _, errs, code := newShell(t).run("version", "-o", "xml"); code != fault.Usage || !strings.Contains(errs, "json, yaml") {
		t.Errorf("xml: exit code %d\n%s", code, errs)
	}
}
