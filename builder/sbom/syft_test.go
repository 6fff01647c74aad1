package sbom

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/rig"
)

// Syft's decoders, which grype uses, read both lists: the same packages with the same versions
// and package URLs. CycloneDX's files and containers are no packages there.
//
// testdata/syft needs two modules that not every proxy has: docker/cli in another release, and a
// replacement of the parser of licences, which the lists do not use. Syft writes package URLs
// with more escapes.
func TestSyftReadsTheLists(t *testing.T) {
	reader := syftReader(t)
	c := everything(t)
	for format, skip := range map[Format][]Kind{SPDX: nil, CycloneDX: {Layer, Image, Manifest, File}} {
		list, err := c.Encode(format, time.Unix(0, 0).UTC())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "list.json")
		if err := os.WriteFile(path, list, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(reader, path).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", format, err, out)
		}
		lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		if version := map[Format]string{SPDX: "2.3", CycloneDX: "1.6"}[format]; lines[0] != "format "+string(format)+" "+version {
			t.Errorf("%s is read as %q", format, lines[0])
		}
		var got, want []string
		modules := 0
		for _, line := range lines[1:] {
			if f := strings.Split(line, "\t"); f[0] == "package" {
				got = append(got, f[2]+" "+f[3]+" "+unescaped(t, f[4]))
				if f[1] == "go-module" {
					modules++
				}
			}
		}
		wantModules := 0
		for _, i := range append([]*Item{c.Root}, c.Items...) {
			if slices.Contains(skip, i.Kind) {
				continue
			}
			want = append(want, i.Name+" "+i.Version+" "+unescaped(t, i.PURL))
			if i.Kind == Module {
				wantModules++
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || modules != wantModules || modules < 3 {
			t.Errorf("%s: syft reads %d packages, %d of them Go modules; want %d and %d\n%s\nwant\n%s", format, len(got), modules, len(want), wantModules,
				strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func unescaped(t *testing.T, purl string) string {
	t.Helper()
	s, err := url.PathUnescape(purl)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// syftReader builds the command in testdata/syft, which is a module of its own.
func syftReader(t *testing.T) string {
	t.Helper()
	rig.Tool(t, "go")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/syft")); err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{dir, filepath.Join(dir, "licences")} {
		if err := os.Rename(filepath.Join(module, "go.mod.txt"), filepath.Join(module, "go.mod")); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "syftread", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "syftread")
}
