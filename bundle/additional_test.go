package bundle

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/rig"
)

// additionalSample has a manifest and the images of newSample, without the layer that they
// share: it is only in the base.
func additionalSample() *sample {
	s := newSample()
	m := s.manifest
	shared := m.Images[0].Layers[0].DiffID
	m.Only, m.CNI, m.Components = []string{OnlyImages, OnlyManifests}, "none", nil
	m.Base = &Base{ManifestSHA256: strings.Repeat("ab", 32), Layers: []string{shared}}
	for n := range m.Images {
		m.Images[n].Name = m.Images[n].Reference
	}
	app := []byte("kind: Pod\n")
	blobs := slices.DeleteFunc(m.Entries, func(e Entry) bool { return isBinary(e) || e.Name == BlobName(shared) })
	m.Entries = append([]Entry{{"manifests/app.yaml", int64(len(app)), sha(app)}}, blobs...)
	m.Manifests = []SiteManifest{{Name: "app", Namespace: "web"}}
	s.content["manifests/app.yaml"] = app
	return s
}

func TestAdditionalBundle(t *testing.T) {
	s := additionalSample()
	path := s.write(t)
	if err := checkFile(t, path); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	got, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	want := s.manifest
	want.Components = []Component{}
	if !reflect.DeepEqual(got, want) || !got.Additional() {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	shared := got.Images[0].Layers[0]
	if in := got.OnlyInBase(); !reflect.DeepEqual(in, map[string]int64{shared.DiffID: shared.Size}) {
		t.Errorf("only in the base: %v", in)
	}
	if in := newSample().manifest.OnlyInBase(); len(in) > 0 {
		t.Errorf("only in the base of a bundle without one: %v", in)
	}
	var names []string
	for _, p := range f.Parts() {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{HeadPart, ImagesPart}) {
		t.Errorf("parts %q", names)
	}
	t.Run("tar lists it", func(t *testing.T) {
		rig.Tool(t, "zstd")
		entries := []string{ManifestName, InstallerName}
		for _, e := range want.Entries {
			entries = append(entries, e.Name)
		}
		list := sh(t, t.TempDir(), "tail -c +%d %s | tar --zstd -tf -", f.PayloadOffset()+1, path)
		if list != strings.Join(entries, "\n")+"\n" {
			t.Errorf("tar lists\n%s", list)
		}
	})

	// A base from which no layer is left out.
	s.manifest.Base.Layers, s.manifest.Images = nil, nil
	s.manifest.Only, s.manifest.Entries = []string{OnlyManifests}, s.manifest.Entries[:1]
	if err := checkFile(t, s.write(t)); err != nil {
		t.Error(err)
	}
}

func TestForgedAdditionalManifests(t *testing.T) {
	hex := strings.Repeat("cd", 32)
	for name, c := range map[string]struct {
		change func(m *Manifest)
		want   string
	}{
		"unknown kind":   {func(m *Manifest) { m.Only = []string{OnlyImages, "files"} }, `only ["images" "files"] is not a list of ["images" "manifests"]`},
		"other order":    {func(m *Manifest) { m.Only = []string{OnlyManifests, OnlyImages} }, "in this order"},
		"kind twice":     {func(m *Manifest) { m.Only = []string{OnlyImages, OnlyImages, OnlyManifests} }, "in this order"},
		"empty kind":     {func(m *Manifest) { m.Only = []string{""} }, "in this order"},
		"pod network":    {func(m *Manifest) { m.CNI = "flannel" }, `has the pod network "flannel"`},
		"nearest":        {func(m *Manifest) { m.NearestKnown = "v1.29.14" }, "has nearestKnown"},
		"component":      {func(m *Manifest) { m.Components = []Component{component("zy", m.Entries[0].Name)} }, `entry "manifests/app.yaml" is not in bin/`},
		"bare component": {func(m *Manifest) { c := component("zy", ""); c.Entries = nil; m.Components = []Component{c} }, "has components"},
		"unclaimed binary": {func(m *Manifest) {
			m.Entries = append([]Entry{{"bin/runc", 1, hex}}, m.Entries...)
		}, `nothing in the bundle uses the entry "bin/runc"`},
		"file":                 {siteFile(SiteFile{"/etc/motd", "0644", "", ""}), "has files"},
		"unit":                 {func(m *Manifest) { m.Units = []SiteUnit{{Name: "x.service"}} }, "has units"},
		"images not listed":    {func(m *Manifest) { m.Only = []string{OnlyManifests} }, `only ["manifests"] has images`},
		"manifests not listed": {func(m *Manifest) { m.Only = []string{OnlyImages} }, `only ["images"] has manifests`},
		"image of Kubernetes":  {func(m *Manifest) { m.Images[0].Name = "pause" }, `image "pause": the name of an image in an additional bundle is its reference`},

		"base of a full bundle": {func(m *Manifest) { m.Only = nil }, "base is only for bundles with the field only"},
		"base without sha256":   {func(m *Manifest) { m.Base.ManifestSHA256 = "" }, `manifestSHA256 "" is not 64`},
		"base in upper case":    {func(m *Manifest) { m.Base.ManifestSHA256 = strings.ToUpper(m.Base.ManifestSHA256) }, "is not 64 lower-case hex digits"},
		"base with a prefix":    {func(m *Manifest) { m.Base.ManifestSHA256 = "sha256:" + m.Base.ManifestSHA256 }, "is not 64 lower-case hex digits"},
		"layer without prefix":  {func(m *Manifest) { m.Base.Layers[0] = hex }, "base: "},
		"layer twice":           {func(m *Manifest) { m.Base.Layers = append(m.Base.Layers, m.Base.Layers[0]) }, "is listed twice or out of order"},
		"layers out of order": {func(m *Manifest) {
			m.Base.Layers = []string{"sha256:" + strings.Repeat("f", 64), m.Base.Layers[0]}
		}, "is listed twice or out of order"},
		"unused layer": {func(m *Manifest) {
			m.Base.Layers = append(m.Base.Layers, "sha256:"+strings.Repeat("f", 64))
		}, "base: no image has the layer sha256:ffff"},
		"layer that is an entry": {func(m *Manifest) {
			l := m.Images[0].Layers[0]
			m.Entries = append(m.Entries, Entry{BlobName(l.DiffID), l.Size, strings.TrimPrefix(l.DiffID, "sha256:")})
		}, "is in this bundle"},
		"layer that is neither here nor there": {func(m *Manifest) { m.Base.Layers = nil }, "layer 1: entry"},
		"layer without a base":                 {func(m *Manifest) { m.Base = nil }, "layer 1: entry"},
		"negative layer size":                  {func(m *Manifest) { m.Images[0].Layers[0].Size = -1 }, "layer 1: size -1 is not between 0 and"},
		"huge layer size":                      {func(m *Manifest) { m.Images[0].Layers[0].Size = MaxEntry + 1 }, "layer 1: size 1099511627777 is not between 0 and"},
		"layer of two sizes":                   {func(m *Manifest) { m.Images[1].Layers[0].Size++ }, "layer 1: size is 10241, another image's is 10240"},
		"config only in the base": {func(m *Manifest) {
			m.Base.Layers = append(m.Base.Layers, m.Images[0].Config.Digest)
			slices.Sort(m.Base.Layers)
			m.Entries = slices.DeleteFunc(m.Entries, func(e Entry) bool { return e.Name == BlobName(m.Images[0].Config.Digest) })
		}, "config: entry"},
		"too many layers": {func(m *Manifest) {
			m.Base.Layers = nil
			for n := range maxEntries {
				m.Base.Layers = append(m.Base.Layers, fmt.Sprintf("sha256:%064x", n))
			}
		}, "more than the 65536 allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			m := additionalSample().manifest
			c.change(m)
			if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Encode: %v, want %q", err, c.want)
			}
			wantFault(t, check(t, withManifest(m.canonical())), c.want)
		})
	}
}

// An additional bundle has one form, too.
func TestAdditionalManifestHasOneForm(t *testing.T) {
	m := additionalSample().manifest
	good, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	full, err := newSample().manifest.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.Base.Layers, m.Images, m.Entries, m.Only = nil, nil, m.Entries[:1], []string{OnlyManifests}
	empty, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	only := "  \"only\": [\n    \"images\",\n    \"manifests\"\n  ],\n"
	for name, c := range map[string]struct{ json, old, new string }{
		"only is empty":            {string(full), "  \"components\"", "  \"only\": [],\n  \"components\""},
		"base is null":             {string(full), "  \"components\"", "  \"base\": null,\n  \"components\""},
		"only in one line":         {string(good), only, "  \"only\": [\"images\", \"manifests\"],\n"},
		"only at another place":    {strings.Replace(string(good), only, "", 1), "  \"components\"", only + "  \"components\""},
		"layers without a value":   {string(empty), "\"layers\": []", "\"layers\": null"},
		"base without layers":      {string(empty), ",\n    \"layers\": []", ""},
		"unknown field of a base":  {string(good), "    \"layers\": [", "    \"file\": \"install\",\n    \"layers\": ["},
		"base with another case":   {string(good), `"manifestSHA256"`, `"manifestSha256"`},
		"base in escaped letters":  {string(good), `"base"`, `"b\u0061se"`},
		"the same base once again": {string(good), "  \"base\": {", "  \"base\": {},\n  \"base\": {"},
	} {
		if !strings.Contains(c.json, c.old) {
			t.Fatalf("%s: no %s in\n%s", name, c.old, c.json)
		}
		_, err := DecodeManifest([]byte(strings.Replace(c.json, c.old, c.new, 1)))
		want := "canonical"
		if strings.HasPrefix(name, "unknown") {
			want = "unknown field"
		}
		wantFault(t, err, want)
	}
}
