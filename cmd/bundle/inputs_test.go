package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/internal/fault"
)

// read returns the content of a file.
func (s shell) read(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// all returns the content of every file, by its path.
func (s shell) all() map[string]string {
	s.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}

// A build and an update do not replace what they read.
func TestInputsAreNotReplaced(t *testing.T) {
	u := siteSites(t)
	s := siteShell(t, u)
	u.Forget()
	s.writeAll(map[string]string{
		"old": "old bundle\n", "key.minisig": "a key\n", "auth.json": "{}\n", "app.tar": "an archive\n", "values.yaml": "a: b\n", "sums": strings.Repeat("ab", 32) + "  kubectl\n",
		"site/chart.yaml": "apiVersion: airlift/v1\nkind: Bundle\nkubernetesVersion: v1.29.15\narchitectures: [amd64]\nchecksumFiles: [../sums]\nmanifests:\n" +
			"- {name: app, chart: {source: app.tgz, values: [../values.yaml]}}\n",
		"site/app.tgz": "a chart\n",
	})
	if err := os.Symlink("site/bundle.yaml", filepath.Join(s.dir, "link")); err != nil {
		t.Fatal(err)
	}
	before := s.all()
	site := []string{"--file", "site/bundle.yaml"}
	for _, c := range []struct {
		command string
		args    []string
		want    string
	}{
		{"build", []string{"--output", "site/bundle.yaml"}, `the bundle would replace the file of --file "site/bundle.yaml"`},
		{"build", []string{"--output", "link"}, `the bundle would replace the file of --file "site/bundle.yaml"`},
		{"build", []string{"--output", "site/web.yaml"}, `the bundle would replace the manifest "site/web.yaml"`},
		{"build", []string{"--output", filepath.Join(s.dir, "site/motd")}, `the bundle would replace the file "site/motd"`},
		{"build", []string{"--output", "stub"}, `the bundle would replace the launcher "stub"`},
		{"build", []string{"--output", "auth.json", "--registry-auth", "auth.json"}, `the bundle would replace the file of --registry-auth "auth.json"`},
		{"build", []string{"--output", "app.tar", "--image", "oci-archive:app.tar=app:1"}, `the bundle would replace the image "app.tar"`},
		{"build", []string{"--output", "sums", "--checksums", "sums"}, `the bundle would replace the checksums "sums"`},
		{"build", []string{"--output", "key", "--sign-key", "key.minisig"}, `its signature would replace the secret key "key.minisig"`},
		{"build", []string{"--output", "new", "--lock", "./new"}, `the lock would replace the bundle "new"`},
		{"build", []string{"--lock", "site/bundle.yaml"}, `the lock would replace the file of --file "site/bundle.yaml"`},
		{"update", []string{"--lock", "site/bundle.yaml"}, `the lock would replace the file of --file "site/bundle.yaml"`},
		{"update", []string{"--lock", "site/exporter.service"}, `the lock would replace the file "site/exporter.service"`},
		{"update", []string{"--file", "site/chart.yaml", "--lock", "old", "--base", "old", "--only", "images"}, `the lock would replace the base "old"`},
		{"build", []string{"--file", "site/chart.yaml", "--output", "values.yaml"}, `the bundle would replace the values "values.yaml"`},
		{"build", []string{"--file", "site/chart.yaml", "--output", "site/app.tgz"}, `the bundle would replace the chart "site/app.tgz"`},
		{"build", []string{"--file", "site/chart.yaml", "--output", "sums"}, `the bundle would replace the checksums "sums"`},
	} {
		args := slices.Concat([]string{c.command}, site, c.args)
		if c.command == "build" {
			args = append(args, "--launcher", "stub", "--installer", "stub")
		}
		out, errs, code := s.run(args...)
		if code != fault.Usage || out != "" || !strings.Contains(errs, c.want) || !strings.Contains(errs, "hint: choose another path with --") {
			t.Errorf("%q: exit code %d, want %q\n%s%s", args, code, c.want, out, errs)
		}
	}
	if after := s.all(); !maps.Equal(after, before) {
		t.Errorf("files changed: %v", slices.Sorted(maps.Keys(after)))
	}
	if got := u.Requests(); len(got) > 0 {
		t.Errorf("downloads began: %v", got)
	}
}
