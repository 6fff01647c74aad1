package bundle

import (
	"bytes"
	"strings"
	"testing"
)

// siteSample has a manifest, a file of control planes, and a unit with the content of another
// file. The last entry follows the blobs.
func siteSample() *sample {
	s := newSample()
	add := func(name string, content []byte) {
		s.content[name] = content
		s.manifest.Entries = append(s.manifest.Entries, Entry{name, int64(len(content)), sha(content)})
	}
	app, unit, late := []byte("kind: Pod\n"), []byte("[Install]\n"), bytes.Repeat([]byte("late"), 300)
	blobs := s.manifest.Entries[blobsAt-binariesAt:]
	s.manifest.Entries = s.manifest.Entries[: blobsAt-binariesAt : blobsAt-binariesAt]
	add("manifests/app.yaml", app)
	add(FileName(sha(unit)), unit)
	s.manifest.Entries = append(s.manifest.Entries, blobs...)
	add(FileName(sha(late)), late)
	s.manifest.Manifests = []SiteManifest{{Name: "app", Chart: "app 1.0.0", Namespace: "web"}}
	s.manifest.Files = []SiteFile{
		{"/etc/late", "0600", ControlPlanes, FileName(sha(late))},
		{UnitDir + "a.service", "0644", Workers, FileName(sha(unit))},
		{"/srv/unit", "0644", "", FileName(sha(unit))},
	}
	s.manifest.Units = []SiteUnit{{"a.service", Workers}}
	add("sbom/a.json", []byte("{}"))
	add("sbom/b.json", []byte("{}"))
	s.manifest.SBOMs = []SBOM{{"a", "sbom/b.json"}, {"b-1", "sbom/a.json"}}
	return s
}

// verify compares the site's entries with their sha256 although the digests of the payload are
// right.
func TestVerifySiteEntries(t *testing.T) {
	s := siteSample()
	manifest, err := s.manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	installer := executables().Installer
	file := func(tampered string) []byte {
		fs := []forgedFile{
			{*tarHeader(ManifestName, int64(len(manifest))), manifest},
			{*tarHeader(InstallerName, int64(len(installer))), installer},
		}
		for _, e := range s.manifest.Entries {
			content := bytes.Clone(s.content[e.Name])
			if e.Name == tampered {
				content[len(content)/2] ^= 1
			}
			fs = append(fs, forgedFile{*tarHeader(e.Name, e.Size), content})
		}
		var parts [][]byte
		for _, p := range packed(t, fs) {
			parts = append(parts, compress(p))
		}
		return forge(manifest, parts...)
	}
	if err := check(t, file("")); err != nil {
		t.Fatal(err)
	}
	for _, f := range s.manifest.Files {
		wantFault(t, check(t, file(f.Entry)), `entry "`+f.Entry+`": its sha256`)
	}
	wantFault(t, check(t, file("sbom/a.json")), `entry "sbom/a.json": its sha256`)
	wantFault(t, check(t, file("manifests/app.yaml")), `entry "manifests/app.yaml": its sha256`)
}

// The version of an add-on is a text, and its objects are of no chart.
func TestAddOnInManifest(t *testing.T) {
	for _, c := range []struct {
		manifest SiteManifest
		want     string
	}{
		{SiteManifest{Name: "app", AddOn: "v1.0.0"}, ""},
		{SiteManifest{Name: "app", AddOn: "v1.0.0", Chart: "app 1.0.0"}, "both a chart and an add-on"},
		{SiteManifest{Name: "app", AddOn: "v1\n"}, "addOn"},
	} {
		s := siteSample()
		s.manifest.Manifests = []SiteManifest{c.manifest}
		err := s.manifest.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c.manifest, err)
		}
		if s.manifest.HasAddOn("app") != true || s.manifest.HasAddOn("other") {
			t.Errorf("%+v: HasAddOn", c.manifest)
		}
	}
}
