package sitefile_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"airlift/builder/sitefile"
)

// Whatever is in the file: no panic, and every error names a line of it.
func FuzzRead(f *testing.F) {
	for _, text := range []string{head, head + "files:\n- &a {path: /etc/motd, source: motd}\n- *a\n", head + "manifests: &m\n- {<<: {name: a}, path: b}\nimages: *m\n", "a: &a [*a]\n", "? [a]\n: b\n", "- a\n"} {
		f.Add([]byte(text))
	}
	place := regexp.MustCompile(`bundle\.yaml:[1-9][0-9]*: `)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "bundle.yaml")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := sitefile.Read(path, func(string) bool { return false }); err != nil && !place.MatchString(err.Error()) {
			t.Errorf("%v", err)
		}
	})
}
