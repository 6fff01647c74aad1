package sbom

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"

	"airlift/scripts/rig"
)

// The modules of a binary are those that go version -m prints.
func TestModulesAreThoseOfGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "launch")
	if err := os.WriteFile(path, launch(t), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "version", "-m", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	_, version, _ := strings.Cut(lines[0], ": ")
	version, _, _ = strings.Cut(version, " ")
	want := []string{"stdlib " + version}
	for _, line := range lines {
		if f := strings.Fields(line); f[0] == "mod" || f[0] == "dep" || f[0] == "=>" {
			if f[0] == "=>" {
				want = want[:len(want)-1]
			}
			want = append(want, f[1]+" "+f[2])
		}
	}
	c := read(t, bundleOf(t, launch(t), tarOf(t, tarFile{name: "bin/app", content: string(launch(t))}, tarFile{name: "bin/same", link: "bin/app"})))
	for _, name := range []string{"kubelet", "/bin/app", "/bin/same"} {
		n := slices.IndexFunc(c.Items, func(i *Item) bool { return i.Kind == Binary && i.Name == name })
		if n < 0 {
			t.Fatalf("%s is not in the list", name)
		}
		if c.Items[n].SHA256 != hexSum(launch(t)) {
			t.Errorf("sha256 of %s: %s", name, c.Items[n].SHA256)
		}
		var got []string
		for _, id := range c.Items[n].DependsOn {
			got = append(got, c.byID[id].Name+" "+c.byID[id].Version)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || len(got) < 3 {
			t.Errorf("%s has the modules\n%s\ngo prints\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// The packages of a layer are those that dpkg-query prints: here with this machine's
// packages, which have all kinds of versions and sources.
func TestPackagesAreThoseOfDpkg(t *testing.T) {
	rig.Tool(t, "dpkg-query")
	status, err := os.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		t.Fatal(err)
	}
	// One package that was removed, with its configuration left.
	status = append(bytes.TrimSpace(status), "\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example>\nDescription: gone\n"...)
	root := t.TempDir()
	for _, dir := range []string{"updates", "info"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "status"), status, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("dpkg-query", "--admindir="+root, "-W",
		"-f", "${db:Status-Status} ${Package} ${Version} ${Architecture} ${source:Package} ${source:Version}\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); f[0] != "config-files" {
			want = append(want, strings.Join(f[1:], " "))
		}
	}
	var got []string
	for _, i := range read(t, bundleOf(t, nil, tarOf(t, tarFile{name: "./var/lib/dpkg/status", content: string(status)}))).Items {
		if i.Kind == Deb {
			got = append(got, fmt.Sprint(i.Name, " ", i.Version, " ", i.property("architecture"), " ", i.property("sourcePackage"), " ", i.property("sourceVersion")))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(got) < 50 {
		t.Errorf("%d packages, dpkg-query prints %d:\n%s\nand\n%s", len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// everything is a bundle with items of all kinds.
func everything(t *testing.T) *Contents {
	return read(t, bundleOf(t, launch(t), tarOf(t,
		tarFile{name: "bin/app", content: string(launch(t))},
		tarFile{name: "usr/lib/os-release", content: "ID=debian\nVERSION_ID=\"12\"\n"},
		tarFile{name: "var/lib/dpkg/status.d/libc6", content: "Package: libc6\nSource: glibc\nVersion: 1:2.36-9+deb12u10\nArchitecture: amd64\n"},
		tarFile{name: "lib/apk/db/installed", content: "P:musl\x1b[2J\nV:1.2.5-r0\nA:x86_64\no:musl\n"})))
}

func TestCycloneDXMatchesItsSchema(t *testing.T) {
	rig.Tool(t, "go")
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	schemas := filepath.Join(strings.TrimSpace(string(dir)), "schema")
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for url, name := range map[string]string{"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json"} {
		f, err := os.Open(filepath.Join(schemas, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		schema, err := jsonschema.UnmarshalJSON(f)
		if err == nil {
			err = compiler.AddResource("http://cyclonedx.org/schema/"+url, schema)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := everything(t).Encode(CycloneDX, time.Unix(0, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(document); err != nil {
		t.Error(err)
	}
}

func TestSPDXIsValid(t *testing.T) {
	c := everything(t)
	b, err := c.Encode(SPDX, time.Unix(0, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := spdxjson.Read(bytes.NewReader(b))
	if err == nil {
		err = spdxlib.ValidateDocument(doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(doc.Packages) != len(c.Items)+1 {
		t.Errorf("%d packages for %d items", len(doc.Packages), len(c.Items))
	}
	if ids, err := spdxlib.GetDescribedPackageIDs(doc); err != nil || len(ids) != 1 || ids[0] != "bundle" {
		t.Errorf("it describes %v: %v", ids, err)
	}
}

func TestSameFileSameBytes(t *testing.T) {
	one, two := everything(t), everything(t)
	for _, f := range Formats() {
		a, err := one.Encode(Format(f), time.Unix(0, 0).UTC())
		if err != nil {
			t.Fatal(err)
		}
		b, err := two.Encode(Format(f), time.Unix(0, 0).UTC())
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v", f, err)
		}
		if bytes.ContainsRune(a, '\x1b') || bytes.Contains(a, []byte(`\u001b`)) {
			t.Errorf("%s has a terminal's escape", f)
		}
	}
}

func TestPackageURLs(t *testing.T) {
	var got []string
	for _, i := range everything(t).Items {
		if i.Kind == Deb || i.Kind == Apk || i.Kind == Image || i.Kind == Chart {
			p, _, _ := strings.Cut(i.PURL, "@sha256:")
			got = append(got, p)
		}
	}
	want := []string{
		"pkg:apk/debian/musl%1B%5B2j@1.2.5-r0?arch=x86_64&distro=debian-12&upstream=musl",
		"pkg:generic/site@1.2.3",
		"pkg:deb/debian/libc6@1:2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12&upstream=glibc",
		"pkg:oci/app",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
