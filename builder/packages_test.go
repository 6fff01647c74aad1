package builder_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder"
	"airlift/builder/lock"
	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/bundle/delta"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/distro"
	"airlift/scripts/fixtures/fakesites"
)

func TestPackages(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := options(t, u)
	dir := t.TempDir()
	debs := filepath.Join(dir, "debs")
	app := distro.Deb(t, debs, distro.Package{Name: "zz-app", Version: "1:2-1", Arch: "amd64", Fields: "Source: app-src (2-1)\nPre-Depends: base\nDepends: libc6 (>= 2)"})
	base := distro.Deb(t, debs, distro.Package{Name: "base", Version: "1", Fields: "Depends: lib"})
	lib := distro.Deb(t, dir, distro.Package{Name: "lib", Version: "1"})
	fakesites.WriteFiles(t, dir, map[string]string{"status": "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\nArchitecture: amd64\n"})
	list := filepath.Join(dir, "status")
	o.Site.Packages = []builder.PackageSource{
		{Source: debs, Release: "debian-12", Nodes: bundle.Workers, Installed: list, At: "bundle.yaml:3"}, {Source: lib, Release: "debian-12", At: "bundle.yaml:7"},
	}
	o.Site.Written = map[string]string{debs: "debs", lib: "lib.deb", list: "status"}
	var locked *lock.Lock
	o.Resolved = func(l *lock.Lock) error { locked = l; return nil }
	r := run(t, o)
	got := ""
	for _, p := range r.Manifest.Packages {
		got += fmt.Sprintln(p.Name, p.Version, p.Arch, p.Release, p.Nodes, p.Stage, p.Signature)
	}
	if want := "base 1 all debian-12 worker 0 \nlib 1 all debian-12  0 \nzz-app 1:2-1 amd64 debian-12 worker 1 \n"; got != want {
		t.Errorf("%s", got)
	}
	// The packages come before everything else of the part with the images.
	var order []string
	for _, e := range r.Manifest.Entries {
		order = append(order, filepath.Dir(e.Name))
	}
	if text := strings.Join(order, " "); !strings.Contains(text, "bin packages packages packages blobs/sha256") && !strings.Contains(text, "cni packages packages packages blobs/sha256") {
		t.Errorf("%s", text)
	}
	for entry, text := range content(t, r.Path) {
		if !strings.HasPrefix(entry, bundle.PackageDir) {
			continue
		}
		same := false
		for _, file := range []string{app, base, lib} {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			same = same || bytes.Equal(data, []byte(text))
		}
		if !same {
			t.Errorf("%s is no package", entry)
		}
	}
	var sources []string
	for _, s := range locked.Sources {
		sources = append(sources, s.Path)
	}
	if text := strings.Join(sources, " "); text != "debs/base_1_all.deb debs/zz-app_1%3a2-1_amd64.deb lib.deb status" {
		t.Errorf("the lock pins %s", text)
	}
	f, err := bundle.Open(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := sbom.Read(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	purls := ""
	for _, i := range c.Items {
		if i.Kind == sbom.Deb && i.SHA256 != "" {
			purls += i.PURL + "\n"
		}
	}
	if want := "pkg:deb/debian/zz-app@1:2-1?arch=amd64&distro=debian-12&upstream=app-src%402-1\n"; !strings.Contains(purls, want) || strings.Count(purls, "\n") != 3 {
		t.Errorf("%s", purls)
	}
	// The lock pins each package, a delta has a changed one, and it is another file for a saved plan.
	distro.Deb(t, dir, distro.Package{Name: "lib", Version: "1", Files: map[string]string{"usr/share/lib/more": "1"}})
	o.Lock, o.Resolved = locked, nil
	if _, err := runOne(t.Context(), o); err == nil || !strings.Contains(err.Error(), "lib.deb sha256") {
		t.Errorf("a package that is not the one of the lock: %v", err)
	}
	o.Lock, o.Output = nil, filepath.Join(dir, "newer")
	newer, err := bundle.Open(run(t, o).Path)
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Close()
	if newer.ID() == f.ID() {
		t.Error("another package, and the same file")
	}
	stage := func(string, int64) func(int64) { return func(int64) {} }
	if _, err := delta.Create(t.Context(), f, newer, filepath.Join(dir, "delta"), delta.Options{Bundle: "test", Stage: stage}); err != nil {
		t.Fatal(err)
	}
	d, err := delta.Open(t.Context(), filepath.Join(dir, "delta"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Apply(t.Context(), f, filepath.Join(dir, "patched"), stage); err != nil {
		t.Fatal(err)
	}
	patched, err := os.ReadFile(filepath.Join(dir, "patched"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile(newer.Path()); err != nil || !bytes.Equal(patched, want) {
		t.Errorf("a patched file with packages is another one: %v", err)
	}
}

// All problems are reported at once, each with its file, before anything is downloaded.
func TestPackagesThatDoNotFit(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := options(t, u)
	dir := t.TempDir()
	debs := filepath.Join(dir, "debs")
	distro.Deb(t, debs, distro.Package{Name: "app", Version: "1", Fields: "Depends: lib (>= 2), gone"})
	distro.Deb(t, debs, distro.Package{Name: "lib", Version: "1"})
	distro.Deb(t, debs, distro.Package{Name: "lib", Version: "1.5"})
	distro.Deb(t, debs, distro.Package{Name: "foreign", Version: "1", Arch: "s390x"})
	fakesites.WriteFiles(t, dir, map[string]string{"debs/README": "text\n", "status": "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\nArchitecture: amd64\n"})
	data, err := os.ReadFile(filepath.Join(debs, "lib_1_all.deb"))
	if err != nil {
		t.Fatal(err)
	}
	fakesites.WriteFiles(t, dir, map[string]string{"debs/short.deb": string(data[:len(data)-3])})
	o.Site.Packages = []builder.PackageSource{{Source: debs, Release: "debian-12", Installed: filepath.Join(dir, "status"), At: "bundle.yaml:3"}}
	o.Site.Written = map[string]string{debs: "debs"}
	check := func(err error) {
		t.Helper()
		if fault.ExitCode(err) != fault.Usage {
			t.Errorf("%v", err)
		}
		for _, want := range []string{"bundle.yaml:3: ", "debs/README: it is neither", "debs/short.deb: it is not complete", "debs/foreign_1_s390x.deb: it is for s390x, and the bundle for amd64",
			"lib 1 is here, and lib 1.5 in debs/lib_1.5_all.deb", "app 1 needs lib (>= 2)", "app 1 needs gone"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in:\n%v", want, err)
			}
		}
	}
	_, err = runOne(t.Context(), o)
	check(err)
	v := builder.Validate(t.Context(), o, true)
	if len(v.Errors) != 1 {
		t.Fatalf("%v", v.Errors)
	}
	check(v.Errors[0])
	// Hosts of a minor release get the packages for all of them, too: the check is of what they install.
	minor := filepath.Join(dir, "minor")
	for _, p := range []distro.Package{{Name: "app", Version: "1", Fields: "Depends: lib (>= 2)"}, {Name: "lib", Version: "2"}} {
		distro.Deb(t, filepath.Join(minor, "9"), p)
	}
	distro.Deb(t, filepath.Join(minor, "9.4"), distro.Package{Name: "tool", Version: "1", Fields: "Depends: lib"})
	both := []builder.PackageSource{
		{Source: filepath.Join(minor, "9"), Release: "rocky-9", Installed: filepath.Join(dir, "status"), At: "bundle.yaml:3"}, {Source: filepath.Join(minor, "9.4"), Release: "rocky-9.4", At: "bundle.yaml:6"},
	}
	o.Site.Packages = both
	if v := builder.Validate(t.Context(), o, true); len(v.Errors) > 0 {
		t.Errorf("what is in the packages for all minor releases is missing: %v", v.Errors)
	}
	distro.Deb(t, filepath.Join(minor, "9.4"), distro.Package{Name: "lib", Version: "1"})
	if v := builder.Validate(t.Context(), o, true); len(v.Errors) != 1 || !strings.Contains(v.Errors[0].Error(), "app 1 needs lib (>= 2)") {
		t.Errorf("an older version for a minor release: %v", v.Errors)
	}
	// Two packages cannot have one file.
	same := filepath.Join(dir, "same")
	distro.Deb(t, same, distro.Package{Name: "one", Version: "1", Files: map[string]string{"usr/bin/x": "1"}})
	distro.Deb(t, same, distro.Package{Name: "two", Version: "1", Files: map[string]string{"bin/x": "1"}})
	o.Site.Packages = []builder.PackageSource{{Source: same, Release: "debian-12", At: "bundle.yaml:3"}}
	if v := builder.Validate(t.Context(), o, true); len(v.Errors) != 1 || !strings.Contains(v.Errors[0].Error(), "two 1 has /bin/x, and one 1 has /usr/bin/x, which is the same file on hosts") {
		t.Errorf("%v", v.Errors)
	}
	// Without a list, what is missing is a warning.
	o.Site.Packages = []builder.PackageSource{{Source: distro.Deb(t, dir, distro.Package{Name: "app", Version: "1", Fields: "Depends: libc6"}), Release: "debian-12", At: "bundle.yaml:3"}}
	if v := builder.Validate(t.Context(), o, true); len(v.Errors) > 0 || !strings.Contains(strings.Join(v.Warnings, "\n"), "packages for debian-12: not checked, because only the hosts know it: app 1 needs libc6") {
		t.Errorf("%v, %q", v.Errors, v.Warnings)
	}
	o.Only = []string{bundle.OnlyImages}
	if _, err := runOne(t.Context(), o); fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "cannot have packages") {
		t.Errorf("%v", err)
	}
}
