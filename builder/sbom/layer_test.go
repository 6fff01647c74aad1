package sbom

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

const status = "var/lib/dpkg/status"

func deb(name string) string {
	return "Package: " + name + "\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\n"
}

func TestUpperLayersReplaceAndRemove(t *testing.T) {
	lower := []tarFile{{name: status, content: deb("old")}, {name: "var/lib/dpkg/status.d/tz", content: deb("tz")}}
	for name, c := range map[string]struct {
		upper []tarFile
		want  []string
	}{
		"nothing":             {[]tarFile{{name: "etc/x", content: "x"}}, []string{"old 1", "tz 1"}},
		"replaced":            {[]tarFile{{name: "./" + status, content: deb("new")}}, []string{"new 1", "tz 1"}},
		"whiteout":            {[]tarFile{{name: "var/lib/dpkg/.wh.status"}}, []string{"tz 1"}},
		"whiteout of parent":  {[]tarFile{{name: "var/lib/.wh.dpkg"}}, nil},
		"whiteout after file": {[]tarFile{{name: status, content: deb("new")}, {name: "var/lib/dpkg/.wh.status"}}, []string{"new 1", "tz 1"}},
		"opaque":              {[]tarFile{{name: "var/lib/dpkg/.wh..wh..opq"}, {name: status, content: deb("new")}}, []string{"new 1"}},
		"opaque, file first":  {[]tarFile{{name: status, content: deb("new")}, {name: "var/lib/dpkg/.wh..wh..opq"}}, []string{"new 1"}},
		"file for directory":  {[]tarFile{{name: "var/lib/dpkg", content: "x"}}, nil},
		"directory":           {[]tarFile{{name: "var/lib/dpkg/"}}, []string{"old 1", "tz 1"}},
		"opaque root":         {[]tarFile{{name: ".wh..wh..opq"}}, nil},
		"similar name":        {[]tarFile{{name: "var/lib/.wh.dpk"}, {name: "var/lib/dpkg/.wh.status.d2"}}, []string{"old 1", "tz 1"}},
		"aufs":                {[]tarFile{{name: "var/lib/dpkg/.wh..wh.plnk"}}, []string{"old 1", "tz 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := inImage(t, read(t, bundleOf(t, nil, tarOf(t, lower...), tarOf(t, c.upper...))), Deb)
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLayersThatAreNoTars(t *testing.T) {
	whole := tarOf(t, tarFile{name: status, content: deb("x")}, tarFile{name: "etc/x", content: strings.Repeat("x", 5000)})
	c := read(t, bundleOf(t, nil, []byte(strings.Repeat("no tar", 500)), whole[:3000]))
	if len(c.Warnings) != 2 || len(c.Root.Properties) != 5 {
		t.Errorf("warnings %q", c.Warnings)
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestLimits(t *testing.T) {
	var warnings []string
	s, err := newSpool()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var large tooLarge
	read := func(path string, r io.Reader, left int64) error {
		_, err := (&layerReader{spool: s, warnings: &warnings}).search(path, r, &left)
		return err
	}
	if err := read(status, zeros{}, 1<<40); !errors.As(err, &large) || large.limit != maxDatabase {
		t.Errorf("a large database: %v", err)
	}
	if err := read("etc/os-release", zeros{}, 1<<40); !errors.As(err, &large) || large.limit != maxRelease {
		t.Errorf("a large os-release: %v", err)
	}
	// A sparse file that unpacks to more than its layer has.
	if err := read("bin/x", io.MultiReader(strings.NewReader(elfMagic), zeros{}), 1<<20); !errors.As(err, &large) {
		t.Errorf("a sparse executable: %v", err)
	}
	// Exactly as much as the layer has is allowed.
	if err := read("bin/x", strings.NewReader(elfMagic+"1234"), 8); err != nil {
		t.Errorf("at the limit: %v", err)
	}

	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for range 10 {
		if err := w.WriteHeader(&tar.Header{Name: strings.Repeat("x", 4000), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	l := &layerReader{spool: s, warnings: &warnings, names: maxNames - 20_000}
	if _, err := l.read("x", &b, 1<<20); !errors.Is(err, errNames) {
		t.Errorf("many names: %v", err)
	}
}
