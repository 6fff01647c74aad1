package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

func TestLock(t *testing.T) {
	u := siteSites(t)
	s := siteShell(t, u)
	build := []string{"build", "--file", "site/bundle.yaml", "--launcher", "stub", "--installer", "stub"}
	if _, errs, code := s.run(append(build, "--locked")...); code != fault.Usage || !strings.Contains(errs, "bundle update") {
		t.Fatalf("--locked without a lock: %d %s", code, errs)
	}
	out, errs, code := s.run(build...)
	has(t, errs, out, "site/bundle.lock (written)")
	if code != 0 {
		t.Fatal(code)
	}
	content, err := os.ReadFile(filepath.Join(s.dir, "site/bundle.lock"))
	if err != nil {
		t.Fatal(err)
	}
	has(t, "lock", string(content), `"path": "motd"`, `"path": "exporter.service"`, `"reference": "docker.io/team/tool:v1"`)
	if strings.Contains(string(content), s.dir) || strings.Contains(string(content), u.URL()) {
		t.Errorf("the lock depends on the machine: %s", content)
	}

	u.Push("docker.io/team/tool:v1", fakesites.Image(t, "amd64", "new"))
	out, errs, code = s.run(append(build, "--locked")...)
	has(t, errs, out, "site/bundle.lock (used)")
	if code != 0 {
		t.Fatal(code)
	}
	s.writeAll(map[string]string{"site/motd": "new\n"})
	_, errs, code = s.run(build...)
	has(t, "drift", errs, "site/bundle.lock does not fit this build:\n  source motd sha256\n    pinned: ", "hint: accept the changes with \"bundle update\"")
	if code != fault.Failure {
		t.Error(code)
	}
	out, errs, code = s.run("update", "--file", "site/bundle.yaml")
	has(t, errs, out, "image docker.io/team/tool:v1: sha256:", "source motd sha256: ", "site/bundle.lock was written\n")
	if code != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("%d: %s", code, out)
	}
	if out, errs, code = s.run("update", "--file", "site/bundle.yaml"); out != "site/bundle.lock is up to date\n" || code != 0 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if out, errs, code = s.run(build...); code != 0 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
}
