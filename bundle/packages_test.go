package bundle

import (
	"strings"
	"testing"
)

func TestPackages(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	good := func() *Manifest {
		return &Manifest{
			FormatVersion: FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none", Components: []Component{}, Images: []Image{},
			Packages: []SitePackage{
				{Name: "lib", Version: "1:1.0~rc1+b-1", Arch: "all", Release: "debian-12", Entry: PackageName(a, "deb")},
				{Name: "app", Version: "1", Arch: "amd64", Release: "debian-12", Nodes: Workers, Stage: 1, Signature: "key 0123456789ABCDEF", Entry: PackageName(b, "deb")},
			},
			Entries: []Entry{{Name: PackageName(a, "deb"), Size: 1, SHA256: a}, {Name: PackageName(b, "deb"), Size: 1, SHA256: b}},
		}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(m *Manifest){
		"name":           func(m *Manifest) { m.Packages[0].Name = "-i" },
		"version":        func(m *Manifest) { m.Packages[0].Version = "--force-all" },
		"arch":           func(m *Manifest) { m.Packages[0].Arch = "a b" },
		"release":        func(m *Manifest) { m.Packages[0].Release = "debian" },
		"nodes":          func(m *Manifest) { m.Packages[0].Nodes = "all" },
		"out of order":   func(m *Manifest) { m.Packages[0].Stage = 2 },
		"twice":          func(m *Manifest) { m.Packages[1].Name = "lib" },
		"does not exist": func(m *Manifest) { m.Packages[1].Entry = PackageName(strings.Repeat("c", 64), "deb") },
		"two formats": func(m *Manifest) {
			m.Packages[1].Entry, m.Entries[1].Name = PackageName(b, "rpm"), PackageName(b, "rpm")
		},
		"nothing in the bundle uses": func(m *Manifest) { m.Packages = m.Packages[:1] },
		"differs from the name":      func(m *Manifest) { m.Entries[0].SHA256 = b },
		"with the extension":         func(m *Manifest) { m.Entries[0].Name = PackageDir + a },
		"has packages":               func(m *Manifest) { m.Only = []string{OnlyImages} },
	} {
		m := good()
		change(m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
