package ospackage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/scripts/fixtures/distro"
	"airlift/scripts/fixtures/rig"
)

// stanza is a package in the form of dpkg's file status.
func stanza(t testing.TB, text string) *Package {
	t.Helper()
	var p *Package
	if err := stanzas(strings.NewReader(text), func(fields map[string]string) (err error) { p, err = fromControl(fields); return err }); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheck(t *testing.T) {
	pkg := func(name, version, fields string) *Package {
		return stanza(t, "Package: "+name+"\nVersion: "+version+"\nArchitecture: all\n"+fields)
	}
	installed, err := ParseInstalled([]byte(`Package: libc6
Status: install ok installed
Version: 2.36-9
Architecture: amd64

Package: gone
Status: deinstall ok config-files
Version: 1
Architecture: amd64

Package: user
Status: install ok installed
Version: 1
Architecture: all
Depends: lib (= 1)

Package: lib
Status: install ok installed
Version: 1
Architecture: all
Provides: virt (= 1)

Package: mta
Status: hold ok installed
Version: 9
Architecture: all
Conflicts: postfix
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  []*Package
		want string // of the messages, joined by "; "
	}{
		{[]*Package{pkg("a", "1", "Depends: libc6 (>= 2.36), b"), pkg("b", "1", "")}, ""},
		{[]*Package{pkg("a", "1", "Depends: libc6 (>= 2.37)")}, "a 1 needs libc6 (>= 2.37)"},
		{[]*Package{pkg("a", "1", "Depends: gone | virt")}, ""},
		{[]*Package{pkg("a", "1", "Depends: virt (>= 2)")}, "a 1 needs virt (>= 2)"},
		{[]*Package{pkg("a", "1", "Conflicts: libc6")}, "a 1 conflicts with libc6 2.36-9 of the hosts, because of libc6"},
		{[]*Package{pkg("postfix", "1", "")}, "mta 9 of the hosts conflicts with postfix 1, because of postfix"},
		{[]*Package{pkg("lib", "2", "Provides: virt (= 1)")}, "user 1 of the hosts needs lib (= 1), and they would have lib 2"},
		{[]*Package{pkg("lib", "2", ""), pkg("user", "2", "Depends: lib (>= 2)")}, ""},
		{[]*Package{pkg("lib", "0.1", "Depends: nothing")}, ""}, // the hosts keep the newer one
	} {
		var got []string
		for _, p := range Check(c.set, "amd64", installed) {
			got = append(got, p.Message)
			if p.Unsure || p.Hint == "" {
				t.Errorf("%+v", p)
			}
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%v: %q, want %q", c.set, got, c.want)
		}
	}
	if found := Check([]*Package{pkg("a", "1", "Depends: libc6, b"), pkg("b", "1", "")}, "amd64", nil); len(found) != 1 || !found[0].Unsure {
		t.Errorf("without a list: %+v", found)
	}
	names, err := ParseInstalled([]byte("libc6:amd64\t2.36-9\nbash\t5.2-1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if found := Check([]*Package{pkg("a", "1", "Depends: libc6 (>= 2), awk")}, "amd64", names); len(found) != 1 || !strings.Contains(found[0].Hint, WriteDeb) {
		t.Errorf("with names only: %+v", found)
	}
	for _, text := range []string{"", "Package: a\nVersion: 1\nArchitecture: all\nFilename: pool/a.deb\n", "bash-5.1.8-9.el9.x86_64\nglibc-2.34-1.el9.x86_64\n", "Package: a\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: all\n"} {
		if _, err := ParseInstalled([]byte(text)); err == nil {
			t.Errorf("%q is a list", text)
		}
	}
}

func TestStages(t *testing.T) {
	pkg := func(name, fields string) *Package {
		return stanza(t, "Package: "+name+"\nVersion: 1\nArchitecture: all\n"+fields)
	}
	set := []*Package{pkg("app", "Depends: tool"), pkg("tool", "Pre-Depends: base"), pkg("base", "Depends: libx"), pkg("libx", ""), pkg("other", "")}
	got := ""
	stages := Stages(set)
	for _, p := range set {
		got += fmt.Sprint(p.Name, stages[p], " ")
	}
	if got != "app1 tool1 base0 libx0 other0 " {
		t.Error(got)
	}
	if circle := Stages([]*Package{pkg("a", "Pre-Depends: b"), pkg("b", "Pre-Depends: a")}); len(circle) > 0 {
		t.Errorf("%v", circle)
	}
}

// Rules of rpm, by what rpm itself decides in TestRPM of installer/host/ospackages, too.
func TestRPMRanges(t *testing.T) {
	for _, c := range []struct {
		has, needs relation
		want       bool
	}{
		{relation{op: "=", version: "1.0-5"}, relation{op: ">=", version: "1.0"}, true},
		{relation{op: "=", version: "1.0-5"}, relation{op: ">", version: "1.0"}, false},
		{relation{op: "=", version: "1.0-5"}, relation{op: "=", version: "1.0-4"}, false},
		{relation{op: "=", version: "2:1.0-5"}, relation{op: "<", version: "9"}, false},
		{relation{op: "=", version: "1.0~rc1-1"}, relation{op: "<", version: "1.0"}, true},
		{relation{}, relation{op: "=", version: "1"}, true},
	} {
		if got := overlap(c.has, c.needs); got != c.want {
			t.Errorf("%v for %v: %t", c.has, c.needs, got)
		}
	}
	list, err := ParseInstalled([]byte("bash = 5.1.8-9.el9\nlibc.so.6(GLIBC_2.34)(64bit)\nrtld(GNU_HASH)\noldx = 0.5-1\n/bin/sh\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Package{Format: RPM, Name: "a", Version: "1-1", Arch: "noarch", requires: []clause{{{name: "/bin/sh"}}, {{name: "libc.so.6(GLIBC_2.34)(64bit)"}}, {{name: "bash", op: ">=", version: "5"}}, {{name: "/bin/zsh"}}, {{name: "(x or y)"}}},
		obsoletes: []relation{{name: "oldx", op: "<", version: "1"}}}
	var got []string
	for _, f := range Check([]*Package{p}, "amd64", list) {
		got = append(got, fmt.Sprint(f.Unsure, " ", f.Message))
	}
	if want := "false a 1-1 needs /bin/zsh; true a 1-1 needs (x or y); false a 1-1 replaces oldx (< 1), which the hosts have"; strings.Join(got, "; ") != want {
		t.Errorf("%q", got)
	}
}

// Generated packages: what Check finds missing is what the real dpkg refuses to configure.
func TestDependenciesAsDpkg(t *testing.T) {
	rig.Tool(t, "dpkg")
	out, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Fatal(err)
	}
	arch := strings.TrimSpace(string(out))
	if arch != "amd64" && arch != "arm64" {
		t.Fatalf("dpkg is for %s", arch)
	}
	dir := t.TempDir()
	found := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"aa", "bb", "cc", "dd", "ee"}
		version := rapid.SampledFrom([]string{"1", "1-1", "2~rc", "2", "1:1"})
		field := func(name string, alternatives bool) string {
			var list []string
			for range rapid.IntRange(0, 2).Draw(t, name) {
				var c []string
				for range rapid.IntRange(1, 2).Draw(t, "alternatives") {
					r := rapid.SampledFrom([]string{"aa", "bb", "cc", "dd", "ee", "v1", "v2"}).Draw(t, "name")
					if alternatives {
						if rapid.IntRange(0, 3).Draw(t, "versioned") == 0 {
							r += " (" + rapid.SampledFrom([]string{"<<", "<=", "=", ">=", ">>"}).Draw(t, "op") + " " + version.Draw(t, "version") + ")"
						} else if rapid.IntRange(0, 5).Draw(t, "any") == 0 {
							r += ":any"
						}
					} else if rapid.Bool().Draw(t, "provided version") {
						r += " (= " + version.Draw(t, "version") + ")"
					}
					c = append(c, r)
					if !alternatives {
						break
					}
				}
				list = append(list, strings.Join(c, " | "))
			}
			if len(list) == 0 {
				return ""
			}
			return name + ": " + strings.Join(list, ", ") + "\n"
		}
		var status, both strings.Builder
		var set []*Package
		var added []string
		for _, name := range names {
			where := rapid.SampledFrom([]string{"nowhere", "installed", "added"}).Draw(t, name)
			if where == "nowhere" {
				continue
			}
			text := "Package: " + name + "\nMaintainer: A <a@example.com>\nDescription: a test\nVersion: " + version.Draw(t, "version") + "\nArchitecture: " + rapid.SampledFrom([]string{"all", arch}).Draw(t, "arch") + "\n" +
				rapid.SampledFrom([]string{"", "Multi-Arch: foreign\n", "Multi-Arch: allowed\n"}).Draw(t, "multi-arch") + field("Provides", false)
			if strings.Contains(text, "Architecture: all\nMulti-Arch: allowed") {
				text = strings.Replace(text, "Multi-Arch: allowed\n", "", 1) // dpkg refuses it
			}
			if where == "installed" {
				status.WriteString(text + "Status: install ok installed\n\n")
				both.WriteString(text + "Status: install ok installed\n\n")
				continue
			}
			text += field("Depends", true)
			both.WriteString(text + "Status: install ok unpacked\n\n")
			p := &Package{}
			if err := stanzas(strings.NewReader(text), func(fields map[string]string) (err error) { p, err = fromControl(fields); return err }); err != nil {
				t.Fatal(err)
			}
			set, added = append(set, p), append(added, name)
		}
		if len(set) == 0 {
			return
		}
		installed := &Installed{format: Deb}
		if status.Len() > 0 {
			var err error
			if installed, err = ParseInstalled([]byte(status.String())); err != nil {
				t.Fatal(err)
			}
		}
		missing := false
		w := world{arch: arch, installed: installed, added: set}
		for _, p := range set {
			missing = missing || len(w.missing(p)) > 0
		}
		admin := filepath.Join(dir, "admin")
		for _, name := range []string{"updates", "triggers", "info"} {
			if err := os.MkdirAll(filepath.Join(admin, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(admin, "status"), []byte(both.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("dpkg", append([]string{"--admindir=" + admin, "--force-not-root", "--no-act", "--configure"}, added...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		said, err := cmd.CombinedOutput()
		if refused := bytes.Contains(said, []byte("dependency problems")); refused != missing || (err != nil) != refused {
			t.Errorf("missing: %t; dpkg, %v:\n%s\nof:\n%s", missing, err, said, both.String())
		}
		found[missing]++
	})
	if found[true] < 5 || found[false] < 5 {
		t.Errorf("the generated packages decide too little: %v", found)
	}
}

// Generated packages: two that have the same file are found, if and only if the real dpkg refuses the second one, or replaces a file
// of the first one without an error, where /lib is a link to /usr/lib.
func TestSameFilesAsDpkg(t *testing.T) {
	distro.UseDpkg(t)
	dir := t.TempDir()
	found := map[string]int{}
	number := map[bool]int{true: 1}
	rapid.Check(t, func(rt *rapid.T) {
		files := rapid.MapOfN(rapid.SampledFrom([]string{"usr/share/x/one", "usr/share/x/two", "usr/share/y/three", "usr/lib/four", "lib/four", "etc/five"}), rapid.Just(""), 0, 3)
		made := func(name string) (string, *Package) {
			p := distro.Package{Name: name, Version: "1", Files: files.Draw(rt, name)}
			if _, twice := p.Files["lib/four"]; twice {
				delete(p.Files, "usr/lib/four") // no package has one file in both places
			}
			for file := range p.Files {
				p.Files[file] = name
			}
			if rapid.IntRange(0, 3).Draw(rt, "replaces") == 0 {
				p.Fields = "Replaces: " + rapid.SampledFrom([]string{"aa", "bb", "aa (<< 2)", "bb (>= 2)"}).Draw(rt, "what")
			}
			file := distro.Deb(t, dir, p)
			read, _, err := readFile(t, file)
			if err != nil {
				t.Fatal(err)
			}
			return file, read
		}
		a, one := made("aa")
		b, two := made("bb")
		problems := (&world{arch: "amd64", added: []*Package{one, two}}).sameFiles()
		root := distro.Root(t, "debian-12")
		if err := errors.Join(os.Mkdir(filepath.Join(root, "usr/lib"), 0o755), os.Symlink("usr/lib", filepath.Join(root, "lib"))); err != nil {
			t.Fatal(err)
		}
		out, err := distro.Dpkg(t, root, "--install", a, b)
		refused, replaced, want := strings.Contains(out, "trying to overwrite"), false, "the host's package manager would refuse the second one"
		if !refused {
			want = "dpkg would replace the file of the first one without an error"
		}
		for name := range one.files {
			list, _ := distro.Dpkg(t, root, "--listfiles", "aa") // without what bb has taken over
			data, readErr := os.ReadFile(filepath.Join(root, name))
			replaced = replaced || err == nil && readErr == nil && string(data) == "bb" && slices.Contains(strings.Split(list, "\n"), name)
		}
		if (refused || replaced) != (len(problems) > 0) || refused != (err != nil) || len(problems) > 0 && !strings.HasSuffix(problems[0].Hint, want) {
			rt.Errorf("found %+v; dpkg, %v, replaced %t:\n%s", problems, err, replaced, out)
		}
		found["refused"] += number[refused]
		found["replaced"] += number[replaced]
		found["fine"] += number[len(problems) == 0]
	})
	if found["refused"] < 5 || found["replaced"] < 3 || found["fine"] < 5 {
		t.Errorf("the generated packages decide too little: %v", found)
	}
}

// The same with rpm, which accepts files that are the same in both.
func TestSameFilesAsRPM(t *testing.T) {
	rig.Tool(t, "rpm")
	for name, c := range map[string]struct {
		a, b map[string]string
		want string
	}{
		"different":       {map[string]string{"usr/share/x/one": "1"}, map[string]string{"usr/share/x/one": "2"}, "bb 1-1 and aa 1-1 both have /usr/share/x/one"},
		"the same":        {map[string]string{"usr/share/x/one": "1"}, map[string]string{"usr/share/x/one": "1"}, ""},
		"other places":    {map[string]string{"usr/share/x/one": "1"}, map[string]string{"usr/share/x/two": "2"}, ""},
		"usr-merge":       {map[string]string{"lib/x/one": "1"}, map[string]string{"usr/lib/x/one": "2"}, "bb 1-1 has /usr/lib/x/one, and aa 1-1 has /lib/x/one, which is the same file on hosts"},
		"several of them": {map[string]string{"etc/one": "1", "etc/two": "1"}, map[string]string{"etc/one": "2", "etc/two": "2"}, "bb 1-1 and aa 1-1 both have /etc/one and 1 more files"},
	} {
		dir, root := t.TempDir(), distro.Root(t, "rocky-9.4")
		if err := errors.Join(os.Mkdir(filepath.Join(root, "usr/lib"), 0o755), os.Symlink("usr/lib", filepath.Join(root, "lib"))); err != nil {
			t.Fatal(err)
		}
		var set []*Package
		var files []string
		for name, of := range map[string]map[string]string{"aa": c.a, "bb": c.b} {
			files = append(files, distro.RPM(t, dir, distro.Package{Name: name, Version: "1-1", Files: of}))
		}
		slices.Sort(files)
		for _, file := range files {
			p, _, err := readFile(t, file)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, p)
		}
		got := ""
		for _, p := range Check(set, "amd64", nil) {
			if got += p.Message; !strings.HasSuffix(p.Hint, "would refuse the second one") {
				t.Errorf("%s: %s", name, p.Hint)
			}
		}
		out, err := exec.Command("rpm", append([]string{"--root=" + root, "--nodeps", "--ignorearch", "--upgrade", "--test"}, files...)...).CombinedOutput()
		if got != c.want || (err != nil) != (c.want != "") {
			t.Errorf("%s: %q, want %q; rpm, %v:\n%s", name, got, c.want, err, out)
		}
	}
}

// A file that a package needs may have its name through the links to directories in /usr: rpm follows them.
func TestNeededFilesAsRPM(t *testing.T) {
	rig.Tool(t, "rpm")
	for needs, has := range map[string]string{
		"/sbin/tool": "usr/sbin/tool", "/usr/sbin/tool": "sbin/tool", "/lib/x/tool": "usr/lib/x/tool", "/usr/bin/tool": "usr/sbin/tool", "/opt/bin/tool": "usr/opt/bin/tool", "/sbin/other": "usr/sbin/tool",
	} {
		dir, root := t.TempDir(), distro.Root(t, "rocky-9.4")
		for _, name := range []string{"lib", "sbin", "bin"} {
			if err := errors.Join(os.MkdirAll(filepath.Join(root, "usr", name), 0o755), os.Symlink("usr/"+name, filepath.Join(root, name))); err != nil {
				t.Fatal(err)
			}
		}
		list := "" // of what the hosts have
		files := []string{distro.RPM(t, dir, distro.Package{Name: "aa", Version: "1-1", Files: map[string]string{has: "1"}}), distro.RPM(t, dir, distro.Package{Name: "bb", Version: "1-1", Fields: "Requires: " + needs})}
		rpm := func(args ...string) error {
			out, err := exec.Command("rpm", append([]string{"--root=" + root, "--ignorearch"}, args...)...).CombinedOutput()
			t.Logf("%s of %s: %v: %s", needs, has, err, out)
			return err
		}
		var set []*Package
		for _, file := range files {
			p, _, err := readFile(t, file)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, p)
		}
		for _, r := range set[0].provides {
			list += r.name + " " + r.op + " " + r.version + "\n"
		}
		hosts, err := ParseInstalled([]byte(list + "/" + has + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		empty, err := ParseInstalled([]byte("x = 1-1\n"))
		if err != nil {
			t.Fatal(err)
		}
		if want, got := rpm("--upgrade", "--test", files[0], files[1]) == nil, len(Check(set, "amd64", empty)) == 0; got != want {
			t.Errorf("%s, with a package that has %s: %t, and rpm %t", needs, has, got, want)
		}
		if err := rpm("--upgrade", files[0]); err != nil {
			t.Fatal(err)
		}
		if want, got := rpm("--upgrade", "--test", files[1]) == nil, len(Check(set[1:], "amd64", hosts)) == 0; got != want {
			t.Errorf("%s, on hosts that have %s: %t, and rpm %t", needs, has, got, want)
		}
	}
}

// Places, links, ghosts, diversions: what dpkg and rpm do with them is in their sources.
func TestSameFiles(t *testing.T) {
	link, file := owned{same: "link to /usr/share/z"}, owned{}
	for name, c := range map[string]struct {
		a, b   Package
		format Format
		want   int
	}{
		"usr-merge":            {Package{files: map[string]owned{"/lib/x.so": file}}, Package{files: map[string]owned{"/usr/lib/x.so": file}}, Deb, 1},
		"directories":          {Package{files: map[string]owned{"/x": {dir: true}}}, Package{files: map[string]owned{"/x": {dir: true}}}, Deb, 0},
		"links to one place":   {Package{files: map[string]owned{"/x": link}}, Package{files: map[string]owned{"/x": link}}, Deb, 0},
		"a diversion":          {Package{files: map[string]owned{"/x": file}, diverts: true}, Package{files: map[string]owned{"/x": file}}, Deb, 0},
		"a ghost":              {Package{files: map[string]owned{"/x": {same: ghost}}}, Package{files: map[string]owned{"/x": {same: "a"}}}, RPM, 0},
		"an unknown file":      {Package{files: map[string]owned{"/x": {}}}, Package{files: map[string]owned{"/x": {}}}, RPM, 1},
		"in one package twice": {Package{files: map[string]owned{"/lib/x": file, "/usr/lib/x": file}}, Package{}, Deb, 0},
	} {
		c.a.Name, c.b.Name = "a", "b"
		if got := (&world{rpm: c.format == RPM, added: []*Package{&c.a, &c.b}}).sameFiles(); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
