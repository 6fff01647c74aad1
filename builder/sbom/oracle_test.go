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

	"airlift/scripts/fixtures/rig"
)

// goVersion returns the modules that go version -m prints for a program, sorted.
func goVersion(t *testing.T, program []byte) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "version", "-m", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	_, version, _ := strings.Cut(lines[0], ": ")
	version, _, _ = strings.Cut(version, " ")
	modules := []string{"stdlib " + version}
	for _, line := range lines {
		if f := strings.Fields(line); f[0] == "mod" || f[0] == "dep" || f[0] == "=>" {
			if f[0] == "=>" {
				modules = modules[:len(modules)-1]
			}
			modules = append(modules, f[1]+" "+f[2])
		}
	}
	slices.Sort(modules)
	return modules
}

// moduleNames returns the modules that the list has for a program, sorted.
func moduleNames(c *Contents, program *Item) (names []string) {
	for _, id := range program.DependsOn {
		names = append(names, c.byID[id].Name+" "+c.byID[id].Version)
	}
	slices.Sort(names)
	return names
}

// The modules of a binary equal the output of go version -m.
func TestModulesAreThoseOfGo(t *testing.T) {
	want := goVersion(t, launch(t))
	c := read(t, bundleOf(t, launch(t), tarOf(t, tarFile{name: "bin/app", content: string(launch(t))}, tarFile{name: "bin/same", link: "bin/app"})))
	for _, name := range []string{"kubelet", "/bin/app", "/bin/same"} {
		n := slices.IndexFunc(c.Items, func(i *Item) bool { return i.Kind == Binary && i.Name == name })
		if n < 0 {
			t.Fatalf("%s is not in the list", name)
		}
		if c.Items[n].SHA256 != hexSum(launch(t)) {
			t.Errorf("sha256 of %s: %s", name, c.Items[n].SHA256)
		}
		got := moduleNames(c, c.Items[n])
		if !slices.Equal(got, want) || len(got) < 3 {
			t.Errorf("%s has the modules\n%s\ngo prints\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// The packages of a layer equal the output of dpkg-query: here with this machine's packages, which
// have all kinds of versions and sources.
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

// testProgram is another program than launch: the test that is running.
func testProgram(t *testing.T) []byte {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// programs is a release of two programs, one inside the other.
func programs(t *testing.T) *Contents {
	launcher := Executable{Name: "launcher", Platform: "linux/amd64", Content: launch(t)}
	c, err := Executables("v0.1.0", []Executable{{Name: "bundle", Platform: "linux/amd64", Content: testProgram(t), Embedded: []Executable{launcher}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
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
	for _, c := range []*Contents{everything(t), programs(t)} {
		b, err := c.Encode(CycloneDX, time.Unix(0, 0).UTC())
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(document); err != nil {
			t.Errorf("%s: %v", c.Root.Kind, err)
		}
	}
}

func TestSPDXIsValid(t *testing.T) {
	for _, c := range []*Contents{everything(t), programs(t)} {
		b, err := c.Encode(SPDX, time.Unix(0, 0).UTC())
		if err != nil {
			t.Fatal(err)
		}
		doc, err := spdxjson.Read(bytes.NewReader(b))
		if err == nil {
			err = spdxlib.ValidateDocument(doc)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.Root.Kind, err)
		}
		if len(doc.Packages) != len(c.Items)+1 {
			t.Errorf("%s: %d packages for %d items", c.Root.Kind, len(doc.Packages), len(c.Items))
		}
		if ids, err := spdxlib.GetDescribedPackageIDs(doc); err != nil || len(ids) != 1 || string(ids[0]) != string(c.Root.Kind) {
			t.Errorf("%s: it describes %v: %v", c.Root.Kind, ids, err)
		}
	}
}

// A release lists each program once, with the modules that go version -m prints and the modules of
// the program inside it.
func TestExecutables(t *testing.T) {
	c := programs(t)
	if root := c.Root; root.Name != "airlift" || root.Version != "v0.1.0" || len(root.Contains) != 1 {
		t.Errorf("the release is %+v", root)
	}
	bundle := c.byID[c.Root.Contains[0]]
	if bundle.Name != "bundle linux/amd64" || bundle.SHA256 != hexSum(testProgram(t)) || len(bundle.Contains) != 1 {
		t.Fatalf("the program is %+v", bundle)
	}
	launcher := c.byID[bundle.Contains[0]]
	if launcher.Name != "launcher linux/amd64" || launcher.SHA256 != hexSum(launch(t)) {
		t.Fatalf("the program in it is %+v", launcher)
	}
	for item, content := range map[*Item][]byte{bundle: testProgram(t), launcher: launch(t)} {
		want, got := goVersion(t, content), moduleNames(c, item)
		if !slices.Equal(got, want) || len(got) < 2 {
			t.Errorf("%s has the modules\n%s\ngo prints\n%s", item.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if _, err := Executables("v0.1.0", []Executable{{Name: "bundle", Platform: "linux/amd64", Content: []byte("#!/bin/sh\n")}}); err == nil || !strings.Contains(err.Error(), "bundle linux/amd64") {
		t.Errorf("a program that Go did not build: %v", err)
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
