package scan

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/testbundle"
)

type Item = sbom.Item

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func module(name, version string) *Item {
	return &Item{ID: "module " + name + version, Kind: sbom.Module, Name: name, Version: version, PURL: "pkg:golang/" + strings.ToLower(name) + "@" + version}
}

// A fixture is a record of a database, as JSON.
type fixture map[string]any

// rec is a record about a package in an ecosystem, from a version on that is fixed, or "" for none.
func rec(id, ecosystem, name, fixed string, more ...fixture) fixture {
	events := []fixture{{"introduced": "0"}}
	if fixed != "" {
		events = append(events, fixture{"fixed": fixed})
	}
	f := fixture{"schema_version": "1.7.5", "id": id, "modified": "2026-11-28T10:00:00Z",
		"affected": []fixture{{"package": fixture{"ecosystem": ecosystem, "name": name}, "ranges": []fixture{{"type": "ECOSYSTEM", "events": events}}}}}
	for _, m := range more {
		for key, value := range m {
			f[key] = value
		}
	}
	return f
}

func cvss(vector string) fixture {
	return fixture{"severity": []fixture{{"type": "CVSS_V3", "score": vector}}}
}

const (
	critical98 = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
	low31      = "CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:L/I:N/A:N"
)

// writeZip writes a database as OSV publishes it, and returns its path.
func writeZip(t *testing.T, path string, records ...fixture) string {
	t.Helper()
	files := map[string]string{}
	for _, r := range records {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprint(r["id"])+".json"] = string(b)
	}
	return writeRaw(t, path, files)
}

func writeRaw(t *testing.T, path string, files map[string]string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeFile(t *testing.T, name string, content any) string {
	t.Helper()
	b, ok := content.([]byte)
	if !ok {
		var err error
		if b, err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// contents is a list with one component, whose binary has the modules, and two images with the packages.
func contents(modules []*Item, packages ...*Item) *sbom.Contents {
	root := &Item{ID: "bundle", Kind: sbom.Bundle, Name: "airlift-kubernetes", Version: "v1.37.1", PURL: "pkg:generic/airlift-kubernetes@v1.37.1"}
	kubelet := &Item{ID: "kubelet", Kind: sbom.Component, Name: "kubelet", Version: "v1.37.1", PURL: "pkg:generic/kubelet@v1.37.1"}
	binary := &Item{ID: "binary", Kind: sbom.Binary, Name: "kubelet", Version: "v1.37.1", PURL: "pkg:generic/kubelet/kubelet@v1.37.1",
		Properties: []sbom.Property{{Name: "goPackage", Value: "k8s.io/kubernetes/cmd/kubelet"}}}
	app := &Item{ID: "app", Kind: sbom.Image, Name: "registry.example:5000/team/app:v1.2.3", Version: "sha256:aa", PURL: "pkg:oci/app@sha256:aa"}
	tool := &Item{ID: "tool", Kind: sbom.Binary, Name: "/usr/bin/tool", Properties: []sbom.Property{{Name: "goPackage", Value: "example.com/tool/cmd"}}}
	other := &Item{ID: "other", Kind: sbom.Image, Name: "registry.example/other:latest", Version: "sha256:bb", PURL: "pkg:oci/other@sha256:bb"}
	c := &sbom.Contents{Root: root, Items: []*Item{kubelet, binary, app, tool, other}}
	root.Contains, kubelet.Contains, app.Contains = []string{"kubelet", "app", "other"}, []string{"binary"}, []string{"tool"}
	for _, m := range modules {
		c.Items = append(c.Items, m)
		binary.DependsOn, tool.DependsOn = append(binary.DependsOn, m.ID), append(tool.DependsOn, m.ID)
	}
	for _, p := range packages {
		c.Items = append(c.Items, p)
		app.Contains, other.Contains = append(app.Contains, p.ID), append(other.Contains, p.ID)
	}
	return c
}

func deb12(name, source, version string) *Item {
	return &Item{ID: name + version, Kind: sbom.Deb, Name: name, Version: version, PURL: "pkg:deb/debian/" + name + "@" + version + "?arch=amd64&distro=debian-12",
		Properties: []sbom.Property{{Name: "sourcePackage", Value: source}, {Name: "sourceVersion", Value: version}}}
}

func scanned(t *testing.T, c *sbom.Contents, o Options) *Report {
	t.Helper()
	if o.Now.IsZero() {
		o.Now = now
	}
	r, err := Scan(t.Context(), File{"install", c}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lines are the findings of a list, as text.
func lines(list []Vulnerability) (texts []string) {
	for _, v := range list {
		for _, f := range v.Findings {
			texts = append(texts, strings.Join([]string{v.ID, string(v.Severity.Level), f.Package, f.Version, strings.Join(f.FixedIn, ","), f.Place, f.Path, f.Status}, "|"))
		}
	}
	return texts
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOneDefectWithManyNames: Go's record, GitHub's and that of Kubernetes are one vulnerability, with the severity that one of
// them has. A withdrawn record and one for another package are none.
func TestOneDefectWithManyNames(t *testing.T) {
	dir := t.TempDir()
	writeZip(t, dir+"/Go/all.zip",
		rec("GO-2026-1", "Go", "example.com/lib", "1.2.4", fixture{"aliases": []string{"CVE-2026-1", "GHSA-aaaa"}}),
		rec("GHSA-aaaa", "Go", "example.com/lib", "1.2.4", cvss(critical98), fixture{"aliases": []string{"CVE-2026-1"}, "summary": "a\nsummary"}),
		rec("GO-2026-2", "Go", "example.com/lib", "", fixture{"withdrawn": "2026-11-01T00:00:00Z"}),
		rec("GO-2026-3", "Go", "example.com/elsewhere", ""), rec("GO-2026-4", "Go", "example.com/lib", "1.2.3"), rec("GO-2026-5", "npm", "example.com/lib", ""))
	r := scanned(t, contents([]*Item{module("example.com/lib", "v1.2.3")}), Options{Databases: []string{dir}})
	want(t, "findings", lines(r.Vulnerabilities),
		"CVE-2026-1|critical|example.com/lib|1.2.3|1.2.4|kubelet v1.37.1||open", "CVE-2026-1|critical|example.com/lib|1.2.3|1.2.4|registry.example:5000/team/app:v1.2.3|/usr/bin/tool|open")
	if v := r.Vulnerabilities[0]; strings.Join(v.Aliases, " ") != "GHSA-aaaa GO-2026-1" || v.Severity.Score != 9.8 {
		t.Errorf("%+v", v)
	}
	if s := r.Databases[0]; s.Ecosystem != "Go" || s.Records != 4 || s.Withdrawn != 1 || s.Newest.Day() != 28 {
		t.Errorf("%+v", s)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n  critical 9.8  CVE-2026-1 (GHSA-aaaa, GO-2026-1)\n                a summary\n                example.com/lib 1.2.3, fixed in 1.2.4\n                  in kubelet v1.37.1; registry.example:5000/team/app:v1.2.3\n",
		"\n1 vulnerability: 1 critical\n", "Go: 4 records, the newest of 2026-11-28"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestDebian: names of source packages, advisories about several CVEs, and what Debian calls unimportant.
func TestDebian(t *testing.T) {
	db := writeZip(t, t.TempDir()+"/all.zip",
		rec("DEBIAN-CVE-2026-1", "Debian:12", "glibc", "2.36-9+deb12u10", fixture{"upstream": []string{"CVE-2026-1"}}),
		rec("DEBIAN-CVE-2026-1-13", "Debian:13", "glibc", ""),
		rec("DSA-1-1", "Debian:12", "glibc", "2.36-9+deb12u10", fixture{"upstream": []string{"CVE-2026-1", "CVE-2026-2"}}),
		fixture{"id": "DEBIAN-CVE-2026-3", "modified": "2026-11-28T10:00:00Z", "upstream": []string{"CVE-2026-3"}, "affected": []fixture{{
			"package": fixture{"ecosystem": "Debian:12", "name": "glibc"}, "ecosystem_specific": fixture{"urgency": "unimportant"}, "ranges": []fixture{{"type": "ECOSYSTEM", "events": []fixture{{"introduced": "0"}}}}}}})
	r := scanned(t, contents(nil, deb12("libc6", "glibc", "2.36-9+deb12u9")), Options{Databases: []string{db}})
	app, other := "registry.example/other:latest", "registry.example:5000/team/app:v1.2.3"
	var all []string
	for _, id := range []string{"CVE-2026-1", "CVE-2026-2"} {
		all = append(all, id+"|unknown|libc6|2.36-9+deb12u9|2.36-9+deb12u10|"+app+"||open", id+"|unknown|libc6|2.36-9+deb12u9|2.36-9+deb12u10|"+other+"||open")
	}
	all = append(all, "CVE-2026-3|unknown|libc6|2.36-9+deb12u9||"+app+"||unimportant", "CVE-2026-3|unknown|libc6|2.36-9+deb12u9||"+other+"||unimportant")
	want(t, "findings", lines(r.Vulnerabilities), all...)
	if len(r.Worst(Low)) != 2 {
		t.Errorf("%+v", r.Worst(Low))
	}
	if r := scanned(t, contents(nil, deb12("libc6", "glibc", "2.36-9+deb12u10")), Options{Databases: []string{db}}); len(r.Worst(None)) > 0 {
		t.Errorf("%+v", r.Vulnerabilities)
	}
}

// TestVersionsOfMainModules: a binary often has no version of its own module, and Kubernetes replaces its modules by directories.
func TestVersionsOfMainModules(t *testing.T) {
	api := module("k8s.io/api", "v0.0.0")
	api.Properties = []sbom.Property{{Name: "replacedBy", Value: "./staging/src/k8s.io/api"}}
	c := contents([]*Item{module("k8s.io/kubernetes", "(devel)"), module("example.com/tool", ""), api, module("example.com/unknown", "(devel)"), module("airlift", "(devel)")})
	db := writeZip(t, t.TempDir()+"/all.zip", rec("GO-1", "Go", "k8s.io/kubernetes", "1.37.2"), rec("GO-2", "Go", "example.com/tool", "1.2.4"), rec("GO-3", "Go", "k8s.io/api", "0.37.2"),
		rec("GO-4", "Go", "example.com/unknown", ""), rec("CVE-2026-9", "Kubernetes", "k8s.io/kubernetes", "1.37.3"))
	r := scanned(t, c, Options{Databases: []string{db}})
	want(t, "findings", lines(r.Vulnerabilities),
		"CVE-2026-9|unknown|k8s.io/kubernetes|1.37.1|1.37.3|kubelet v1.37.1||open", "GO-1|unknown|k8s.io/kubernetes|1.37.1|1.37.2|kubelet v1.37.1||open",
		"GO-2|unknown|example.com/tool|1.2.3|1.2.4|registry.example:5000/team/app:v1.2.3|/usr/bin/tool|open", "GO-3|unknown|k8s.io/api|0.37.1|0.37.2|kubelet v1.37.1||open")
	if f := r.Vulnerabilities[2].Findings[0]; f.VersionFrom != "the tag of registry.example:5000/team/app:v1.2.3" {
		t.Errorf("%+v", f)
	}
	// What is not known is named, and only where a database knows the package.
	text := strings.Join(r.NotJudged, "\n")
	for _, name := range []string{"example.com/unknown in kubelet v1.37.1", "example.com/tool in kubelet", "k8s.io/kubernetes in registry.example:5000/team/app:v1.2.3 /usr/bin/tool"} {
		if !strings.Contains(text, name) {
			t.Errorf("no %q in %s", name, text)
		}
	}
	if strings.Contains(text, "airlift") {
		t.Error(text)
	}
}

// TestMissingEcosystem: a database that cannot know a package of the bundle is an error, also if it has another release.
func TestMissingEcosystem(t *testing.T) {
	alpine := &Item{ID: "musl", Kind: sbom.Apk, Name: "musl", Version: "1.2.5-r0", PURL: "pkg:apk/alpine/musl@1.2.5-r0?distro=alpine-3.20.3"}
	c := contents([]*Item{module("stdlib", "go1.26.5")}, deb12("libc6", "glibc", "1"), alpine)
	dir := t.TempDir()
	writeZip(t, dir+"/Go/all.zip", rec("GO-1", "Go", "a", ""))
	writeZip(t, dir+"/Debian/all.zip", rec("D-1", "Debian:11", "glibc", ""))
	_, err := Scan(t.Context(), File{"install", c}, Options{Databases: []string{dir}, Now: now})
	if err == nil || !strings.Contains(err.Error(), "no record for alpine 3.20.3, debian 12,") || !strings.Contains(fault.Hint(err), "Alpine/all.zip, Debian/all.zip") || fault.ExitCode(err) != fault.Failure {
		t.Errorf("%v, %s", err, fault.Hint(err))
	}
	writeZip(t, dir+"/Debian/all.zip", rec("D-1", "Debian:12", "glibc", ""))
	writeZip(t, dir+"/osv-scanner/Alpine/all.zip", rec("ALPINE-CVE-2026-7", "Alpine:v3.20", "musl", "1.2.5-r1", fixture{"upstream": []string{"CVE-2026-7"}}))
	if r := scanned(t, c, Options{Databases: []string{dir}}); len(r.Vulnerabilities) != 2 || r.Vulnerabilities[0].ID != "CVE-2026-7" {
		t.Errorf("%q", lines(r.Vulnerabilities))
	}
	// The older bundle needs its databases, too. A distribution that OSV does not have is named.
	old := contents(nil, deb12("libc6", "glibc", "1"))
	old.Items[len(old.Items)-1].PURL = "pkg:deb/debian/libc6@1?distro=debian-10"
	if _, err := Scan(t.Context(), File{"install", c}, Options{Databases: []string{dir}, Base: &File{"old", old}, Now: now}); err == nil || !strings.Contains(err.Error(), "debian 10") {
		t.Error(err)
	}
	old.Items[len(old.Items)-1].PURL = "pkg:deb/house/libc6@1?distro=house-1"
	if r := scanned(t, old, Options{Databases: []string{dir}}); !slices.Contains(r.NotJudged, "house 1: OSV has no database of it (2 packages)") {
		t.Errorf("%q", r.NotJudged)
	}
}

func TestOldDatabase(t *testing.T) {
	db := writeZip(t, t.TempDir()+"/all.zip", rec("GO-1", "Go", "a", ""))
	for days, want := range map[int]string{1: "", 13: "", 15: "THE DATABASE OF Go IS 15 DAYS OLD: its newest record is of 2026-11-28", -3: "the clock of this machine is wrong"} {
		r := scanned(t, contents([]*Item{module("b", "v1.0.0")}), Options{Databases: []string{db}, Now: time.Date(2026, 11, 28+days, 11, 0, 0, 0, time.UTC)})
		if text := strings.Join(r.Warnings, "\n"); (want == "") != (text == "") || !strings.Contains(text, want) {
			t.Errorf("%d days: %q", days, text)
		}
	}
	db = writeZip(t, t.TempDir()+"/all.zip", rec("GO-1", "Go", "a", "", fixture{"withdrawn": "2026-11-01T00:00:00Z"}))
	if r := scanned(t, contents([]*Item{module("a", "v1.0.0")}), Options{Databases: []string{db}}); !strings.Contains(strings.Join(r.Warnings, ""), "IS EMPTY") {
		t.Errorf("%q", r.Warnings)
	}
}

// TestHostileDatabases: each of them is an error that names the file, and none takes memory.
func TestHostileDatabases(t *testing.T) {
	good, err := json.Marshal(rec("GO-1", "Go", "a", ""))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	zip := func(name, content string) string {
		return writeRaw(t, filepath.Join(dir, name), map[string]string{"GO-1.json": content})
	}
	whole, err := os.ReadFile(zip("whole.zip", string(good)))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ path, want string }{
		"bomb":        {zip("bomb.zip", strings.Repeat(" ", 8<<20)), "unpacks to more than 200 times as much"},
		"not JSON":    {zip("text.zip", "hello"), `"GO-1.json" is not a record of OSV`},
		"cut JSON":    {zip("cut.zip", string(good[:len(good)-5])), `"GO-1.json" is not a record of OSV`},
		"no id":       {zip("id.zip", `{"modified":"2026-11-28T10:00:00Z"}`), "no id"},
		"no time":     {zip("time.zip", `{"id":"GO-1"}`), "no time"},
		"wrong type":  {zip("type.zip", strings.Replace(string(good), `"Go"`, `["Go"]`, 1)), "is not a record of OSV"},
		"deep":        {zip("deep.zip", strings.Repeat(`{"a":`, 20000)), "is not a record of OSV|more than 200 times as much"},
		"new format":  {zip("new.zip", strings.Replace(string(good), "1.7.5", "2.0.0", 1)), "version 2.0.0"},
		"not a zip":   {writeFile(t, "all.zip", good), "is not a zip file"},
		"cut zip":     {writeFile(t, "all.zip", whole[:len(whole)-30]), "is not a zip file"},
		"damaged zip": {writeFile(t, "all.zip", append(append([]byte{}, whole[:60]...), append([]byte("XXXX"), whole[64:]...)...)), "checksum error|not a record|corrupt"},
		"no records":  {writeRaw(t, filepath.Join(dir, "empty.zip"), nil), "has no records"},
		"missing":     {filepath.Join(dir, "missing"), "no such file"},
		"directory":   {t.TempDir(), "has no records"},
	}
	large, err := os.Create(filepath.Join(t.TempDir(), "large.json"))
	if err == nil {
		err = large.Truncate(maxRecord + 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	cases["huge"] = struct{ path, want string }{large.Name(), "more than 33554432 bytes"}
	for name, c := range cases {
		_, err := Scan(t.Context(), File{"install", contents([]*Item{module("a", "v1.0.0")})}, Options{Databases: []string{c.path}, Now: now})
		if err == nil || !slices.ContainsFunc(strings.Split(c.want, "|"), func(want string) bool { return strings.Contains(err.Error(), want) }) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDuplicates: a record that several databases have counts once, the newest of them.
func TestDuplicates(t *testing.T) {
	dir := t.TempDir()
	old, is := rec("GO-1", "Go", "a", ""), rec("GO-1", "Go", "a", "1.0.0", fixture{"modified": "2026-11-28T11:00:00Z"})
	a, b := writeZip(t, dir+"/1.zip", old, rec("GO-2", "Go", "a", "")), writeZip(t, dir+"/2.zip", is)
	for _, paths := range [][]string{{a, b}, {b, a}, {a, b, a}, {dir}} {
		r := scanned(t, contents([]*Item{module("a", "v1.0.0")}), Options{Databases: paths})
		if len(r.Vulnerabilities) != 1 || r.Vulnerabilities[0].ID != "GO-2" || r.Databases[0].Records != 2 {
			t.Errorf("%q: %q, %+v", paths, lines(r.Vulnerabilities), r.Databases[0])
		}
	}
	is["modified"] = old["modified"]
	writeZip(t, dir+"/2.zip", is)
	if _, err := Scan(t.Context(), File{"install", contents([]*Item{module("a", "v1.0.0")})}, Options{Databases: []string{dir}, Now: now}); err == nil || !strings.Contains(err.Error(), `"GO-1" is there twice`) {
		t.Error(err)
	}
}

// TestBase: what a new file fixes and brings, whatever the versions and tags of its images.
func TestBase(t *testing.T) {
	db := writeZip(t, t.TempDir()+"/all.zip", rec("GO-1", "Go", "a", "1.1.0"), rec("GO-2", "Go", "a", ""), rec("GO-3", "Go", "b", ""))
	old := contents([]*Item{module("a", "v1.0.0")})
	is := contents([]*Item{module("a", "v1.1.0"), module("b", "v1.0.0")})
	for _, i := range is.Items {
		i.Name = strings.Replace(i.Name, "app:v1.2.3", "app:v1.3.0", 1)
	}
	r := scanned(t, is, Options{Databases: []string{db}, Base: &File{"old", old}})
	want(t, "fixed", lines(r.Changes.Fixed), "GO-1|unknown|a|1.0.0|1.1.0|kubelet v1.37.1||open", "GO-1|unknown|a|1.0.0|1.1.0|registry.example:5000/team/app:v1.2.3|/usr/bin/tool|open")
	want(t, "brought", lines(r.Changes.Brought), "GO-3|unknown|b|1.0.0||kubelet v1.37.1||open", "GO-3|unknown|b|1.0.0||registry.example:5000/team/app:v1.3.0|/usr/bin/tool|open")
	if r := scanned(t, is, Options{Databases: []string{db}, Base: &File{"same", is}}); len(r.Changes.Fixed)+len(r.Changes.Brought) > 0 {
		t.Errorf("%+v", r.Changes)
	}
}

// TestFailOn: an unknown severity counts as the highest, and what is closed does not count.
func TestFailOn(t *testing.T) {
	db := writeZip(t, t.TempDir()+"/all.zip", rec("GO-1", "Go", "a", "", cvss(critical98)), rec("GO-2", "Go", "a", "", cvss(low31)), rec("GO-3", "Go", "a", ""),
		rec("GO-4", "Go", "a", "", fixture{"database_specific": fixture{"severity": "MODERATE"}}))
	r := scanned(t, contents([]*Item{module("a", "v1.0.0")}), Options{Databases: []string{db}})
	for level, n := range map[Level]int{Critical: 2, High: 2, Medium: 3, Low: 4} {
		if got := len(r.Worst(level)); got != n {
			t.Errorf("%s: %d, want %d", level, got, n)
		}
	}
	if got := r.Summary(); got != "4 vulnerabilities: 1 critical, 1 medium, 1 low, 1 unknown" {
		t.Error(got)
	}
}

// TestHTML: nothing of a database or a bundle is markup, and nothing is from elsewhere.
func TestHTML(t *testing.T) {
	evil := `<script>alert(1)</script>"><img src=http://evil.example/x>` + "\u202e\x1b[31m"
	db := writeZip(t, t.TempDir()+"/all.zip", rec("GO-1", "Go", "a", evil, fixture{"summary": evil, "aliases": []string{evil}}), rec("GO-2", "Go", "a", ""))
	c := contents([]*Item{module("a", "v1.0.0"), module(evil, "v1.0.0")})
	c.Items[2].Name, c.Warnings = evil, []string{evil}
	r := scanned(t, c, Options{Databases: []string{db}, Base: &File{evil, contents(nil)}})
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	page := string(r.HTML())
	for _, id := range []string{"warnings", "vulnerable", "closed", "fixed", "brought"} {
		if !strings.Contains(page, `<section id="`+id+`">`) {
			t.Errorf("no section %s in %s", id, page)
		}
	}
	for _, bad := range []string{"<script", "<img", "\u202e", "\x1b", "<link", "@import", "url(", "%!"} {
		if strings.Contains(page, bad) {
			t.Errorf("%q in the page", bad)
		}
	}
	if strings.ContainsAny(b.String(), "\u202e\x1b") {
		t.Errorf("%q", b.String())
	}
}

// TestRealBundle: a file with a Go binary, a distroless image and one of Alpine; what is found follows from the file alone.
func TestRealBundle(t *testing.T) {
	// A binary that Go built from modules; that of a test does not name them.
	program := filepath.Join(t.TempDir(), "kubelet")
	if out, err := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", program, "airlift/cmd/launch").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kubelet, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	layer := func(files map[string]string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for name, content := range files {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	content := map[string][]byte{}
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.37.1", CNI: "none",
		Components: []bundle.Component{{Name: "kubelet", Version: "v1.37.1", URL: "https://dl.k8s.io/kubelet", Checksum: "sha256:" + testbundle.Sum(kubelet), Entries: []string{"bin/kubelet"}}}}
	add := func(name string, b []byte) bundle.Descriptor {
		if content[name] == nil {
			content[name] = b
			m.Entries = append(m.Entries, bundle.Entry{Name: name, Size: int64(len(b)), SHA256: testbundle.Sum(b)})
		}
		return bundle.Descriptor{MediaType: "application/json", Digest: "sha256:" + testbundle.Sum(b), Size: int64(len(b))}
	}
	add("bin/kubelet", kubelet)
	for name, l := range map[string][]byte{
		"etcd": layer(map[string]string{"usr/lib/os-release": "ID=debian\nVERSION_ID=\"12\"\n", "var/lib/dpkg/status.d/libssl3": "Package: libssl3\nSource: openssl\nVersion: 3.0.17-1~deb12u2\nArchitecture: amd64\n"}),
		"web":  layer(map[string]string{"etc/os-release": "ID=alpine\nVERSION_ID=3.20.3\n", "lib/apk/db/installed": "P:libcrypto3\nV:3.3.2-r0\nA:x86_64\no:openssl\n"}),
	} {
		target := add(bundle.BlobName("sha256:"+testbundle.Sum([]byte(name))), []byte(name))
		d := add(bundle.BlobName("sha256:"+testbundle.Sum(l)), l)
		m.Images = append(m.Images, bundle.Image{Name: name, Reference: "registry.example/" + name + ":v1", Target: target, Manifest: target, Config: target, Layers: []bundle.Layer{{DiffID: d.Digest, Size: d.Size}}})
	}
	slices.SortFunc(m.Images, func(a, b bundle.Image) int { return strings.Compare(a.Reference, b.Reference) })
	stub := fakesites.Executable(t, elf.EM_X86_64)
	path := filepath.Join(t.TempDir(), "install")
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: stub, Installer: stub}, m, bundle.Fastest, content)
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := sbom.Read(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeZip(t, dir+"/Go/all.zip", rec("GO-1", "Go", "github.com/klauspost/compress", "99.0.0", cvss(low31)), rec("GO-2", "Go", "github.com/klauspost/compress", "0.1.0"), rec("GO-3", "Go", "stdlib", "99.0.0", cvss(low31)))
	writeZip(t, dir+"/Debian/all.zip", rec("DEBIAN-CVE-2026-5000", "Debian:12", "openssl", "3.0.18-1~deb12u1", cvss(critical98)), rec("DEBIAN-CVE-2026-6000", "Debian:12", "openssl", "3.0.17-1~deb12u2"))
	writeZip(t, dir+"/Alpine/all.zip", rec("ALPINE-CVE-2026-5000", "Alpine:v3.20", "openssl", "3.3.5-r0", fixture{"upstream": []string{"CVE-2026-5000"}}))
	r := scanned(t, c, Options{Databases: []string{dir}})
	var got []string
	for _, line := range lines(r.Vulnerabilities) {
		fields := strings.Split(line, "|")
		if fields[2] == "stdlib" || fields[2] == "github.com/klauspost/compress" {
			fields[3] = "" // of this build
		}
		got = append(got, strings.Join(fields, "|"))
	}
	want(t, "findings", got, "CVE-2026-5000|critical|libcrypto3|3.3.2-r0|3.3.5-r0|registry.example/web:v1||open", "CVE-2026-5000|critical|libssl3|3.0.17-1~deb12u2|3.0.18-1~deb12u1|registry.example/etcd:v1||open",
		"GO-1|low|github.com/klauspost/compress||99.0.0|kubelet v1.37.1||open", "GO-3|low|stdlib||99.0.0|kubelet v1.37.1||open")
}

// TestManyRecords: generated packages and records; a package is found exactly if its number is below the record's.
func TestManyRecords(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var modules []*Item
	for n := range 50 {
		modules = append(modules, module(fmt.Sprintf("example.com/m%d", n), fmt.Sprintf("v1.%d.0", random.IntN(20))))
	}
	var records []fixture
	expected := map[string]bool{}
	for n := range 400 {
		i, fixed := random.IntN(len(modules)), random.IntN(20)
		id := fmt.Sprintf("GO-2026-%04d", n)
		records = append(records, rec(id, "Go", modules[i].Name, fmt.Sprintf("1.%d.0", fixed)))
		var minor int
		if _, err := fmt.Sscanf(modules[i].Version, "v1.%d.0", &minor); err != nil {
			t.Fatal(err)
		}
		if minor < fixed {
			expected[id] = true
		}
	}
	r := scanned(t, contents(modules), Options{Databases: []string{writeZip(t, t.TempDir()+"/all.zip", records...)}})
	for _, v := range r.Vulnerabilities {
		if !expected[v.ID] || len(v.Findings) != 2 {
			t.Errorf("%+v", v)
		}
		delete(expected, v.ID)
	}
	if len(expected) > 0 {
		t.Errorf("not found: %v", expected)
	}
}
