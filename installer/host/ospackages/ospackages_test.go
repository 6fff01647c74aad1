package ospackages_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"airlift/builder/ospackage"
	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/ospackages"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/distro"
	"airlift/scripts/fixtures/rig"
)

// A site has a host in a root directory, and packages for it.
type site struct {
	*testing.T
	root, dir, release string
	make               func(t testing.TB, dir string, p distro.Package) string
	files              map[string]string // of packages, by their entries
}

func newSite(t *testing.T, release string) *site {
	t.Helper()
	s := &site{T: t, root: distro.Root(t, release), dir: t.TempDir(), release: release, make: distro.Deb, files: map[string]string{}}
	if strings.HasPrefix(release, "rhel") {
		s.make = distro.RPM
	}
	return s
}

// carry makes a package and returns it as a bundle lists it.
func (s *site) carry(p distro.Package, stage ...int) bundle.SitePackage {
	s.Helper()
	file := s.make(s, s.dir, p)
	sum, err := filesystem.DigestFile(file)
	if err != nil {
		s.Fatal(err)
	}
	arch := "all"
	if filepath.Ext(file) == ".rpm" {
		arch = "noarch"
	}
	is := bundle.SitePackage{Name: p.Name, Version: p.Version, Arch: arch, Release: s.release, Entry: bundle.PackageName(sum, filepath.Ext(file)[1:])}
	if len(stage) > 0 {
		is.Stage = stage[0]
	}
	s.files[is.Entry] = file
	return is
}

// open opens the host for changes.
func (s *site) open() (*host.Host, func()) {
	s.Helper()
	h, unlock, err := host.OpenLocked(s.root)
	if err != nil {
		s.Fatal(err)
	}
	return h, unlock
}

// install installs packages as a run of init does. A check before that, as of a dry run, has the same result, and changes nothing.
func (s *site) install(list ...bundle.SitePackage) ([]ospackages.Item, error) {
	s.Helper()
	h, unlock := s.open()
	defer unlock()
	wanted, err := ospackages.ForHost(h, list)
	if err != nil {
		return nil, err
	}
	m, err := ospackages.New(h, list[0].Format(), nil)
	if err != nil {
		return nil, err
	}
	unpack := func(to *host.Host) ospackages.Unpack {
		return func(ctx context.Context, entries []string) (map[string]string, error) {
			paths := map[string]string{}
			for _, e := range entries {
				f, err := os.Open(s.files[e])
				if err != nil {
					return nil, err
				}
				sum, _, _ := strings.Cut(filepath.Base(e), ".")
				paths[e], err = to.PutPackage(ctx, e, sum, f)
				if err = errors.Join(err, f.Close()); err != nil {
					return nil, err
				}
			}
			return paths, nil
		}
	}
	before := s.records()
	dir, err := host.NewDirectory(s.TempDir(), "dry-run-")
	if err != nil {
		s.Fatal(err)
	}
	items, checked := m.Plan(s.Context(), wanted)
	if checked == nil {
		checked = m.Check(s.Context(), items, dir, unpack(dir))
	}
	if after := s.records(); after != before {
		s.Errorf("a dry run changed the host from\n%s\nto\n%s", before, after)
	}
	same := func(err error) bool {
		return checked != nil && strings.ReplaceAll(checked.Error(), dir.Path(host.PackagesDir), h.Path(host.PackagesDir)) == err.Error()
	}
	items, err = m.Install(s.Context(), wanted, unpack(h))
	if refused := err != nil && fault.ExitCode(err) != fault.Failure; refused && !same(err) || !refused && checked != nil {
		s.Errorf("the dry run reported %v, and the run %v", checked, err)
	}
	return items, err
}

// records returns the files with what the package manager knows of the host, without locks.
func (s *site) records() (text string) {
	s.Helper()
	err := filepath.WalkDir(filepath.Join(s.root, "var/lib"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(d.Name(), "lock") {
			return err
		}
		sum, err := filesystem.DigestFile(path)
		text += path + " " + sum + "\n"
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return text
}

// must is install, which succeeds.
func (s *site) must(list ...bundle.SitePackage) []ospackages.Item {
	s.Helper()
	items, err := s.install(list...)
	if err != nil {
		s.Fatal(err)
	}
	return items
}

// refused requires that an installation is refused before it changes anything on the host.
func (s *site) refused(want string, list ...bundle.SitePackage) {
	s.Helper()
	before, entries := s.has(), s.ledger()
	_, err := s.install(list...)
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
		s.Errorf("%v (exit code %d, hint %q), want %q", err, fault.ExitCode(err), fault.Hint(err), want)
	}
	if after := s.has(); after != before || s.ledger() != entries {
		s.Errorf("it changed the host from\n%s%s to\n%s%s", before, entries, after, s.ledger())
	}
	if _, err := os.Stat(s.root + host.PackagesDir); !os.IsNotExist(err) {
		s.Errorf("the directory of packages is left: %v", err)
	}
	if _, err := os.Stat(s.root + ledger.StateDir); entries == "" && !os.IsNotExist(err) {
		s.Errorf("a directory is left: %v", err)
	}
}

// has returns the packages of the host, as its package manager lists them.
func (s *site) has() string {
	s.Helper()
	args := []string{"dpkg-query", "--admindir=" + s.root + "/var/lib/dpkg", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n"}
	if strings.HasPrefix(s.release, "rhel") {
		args = []string{"rpm", "--root=" + s.root, "-qa", "--qf", "%{NAME} %{EVR} installed\n"}
	}
	out, _ := exec.Command(args[0], args[1:]...).Output()
	return string(out)
}

// ledger returns the packages in the ledger.
func (s *site) ledger() (text string) {
	s.Helper()
	h, err := host.Open(s.root)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range h.Records().Entries(ledger.Package) {
		text += fmt.Sprintf("%s %s before %q\n", e.Name, e.Package.Version, e.Package.Before)
	}
	return text
}

// remove removes what was installed, and returns what happened to each package.
func (s *site) remove() (text string) {
	s.Helper()
	h, unlock := s.open()
	defer unlock()
	planned, err := ospackages.Removals(s.Context(), h)
	if err != nil {
		s.Fatal(err)
	}
	list, err := ospackages.Remove(s.Context(), h, nil)
	if err != nil || fmt.Sprint(list) != fmt.Sprint(planned) {
		s.Fatalf("%v, planned %v: %v", list, planned, err)
	}
	for _, r := range list {
		text += r.Name + ": " + r.Leave + "\n"
	}
	if err := h.ForgetUnused(); err != nil {
		s.Fatal(err)
	}
	if _, err := os.Stat(s.root + ledger.StateDir); !os.IsNotExist(err) {
		s.Errorf("the ledger is left: %v", err)
	}
	return text
}

func (s *site) is(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s:\n%swant:\n%s", what, got, want)
	}
}

// dpkg changes the host without Airlift.
func (s *site) dpkg(args ...string) {
	s.Helper()
	if out, err := distro.Dpkg(s, s.root, args...); err != nil {
		s.Fatalf("%v\n%s", err, out)
	}
}

func acts(items []ospackages.Item) (text string) {
	for _, i := range items {
		text += i.Name + " " + i.Act + "\n"
	}
	return text
}

func TestDpkg(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	kept := s.make(t, s.dir, distro.Package{Name: "kept", Version: "9"})
	old := s.make(t, s.dir, distro.Package{Name: "old", Version: "1"})
	s.dpkg("--install", kept, old)
	app := s.carry(distro.Package{Name: "app", Version: "1:1.0-1", Fields: "Depends: lib (>= 1), old (>= 2)", Conffile: "a = 1\n", Scripts: map[string]string{"postinst": `test "$DEBIAN_FRONTEND" = noninteractive && echo "$1" >"$DPKG_ROOT/run/app"`}})
	lib, newer, older := s.carry(distro.Package{Name: "lib", Version: "1"}), s.carry(distro.Package{Name: "old", Version: "2"}), s.carry(distro.Package{Name: "kept", Version: "8"})

	items := s.must(app, lib, newer, older)
	s.is("acts", acts(items), "app install\nlib install\nold upgrade\nkept keep\n")
	s.is("packages", s.has(), "app 1:1.0-1 installed\nkept 9 installed\nlib 1 installed\nold 2 installed\n")
	s.is("ledger", s.ledger(), "app 1:1.0-1 before \"\"\nlib 1 before \"\"\nold 2 before \"1\"\n")
	s.is("again", acts(s.must(app, lib, newer, older)), "app \nlib \nold \nkept keep\n")
	if _, err := os.Stat(s.root + "/run/app"); err != nil {
		t.Error(err)
	}
	// A newer file: its own package and a changed configuration file, without a question.
	if err := os.WriteFile(s.root+"/etc/app.conf", []byte("a = edited\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	app2 := s.carry(distro.Package{Name: "app", Version: "1:1.1-1", Fields: "Depends: lib", Conffile: "a = 2\n"})
	s.is("newer file", acts(s.must(app2)), "app upgrade\n")
	if data, err := os.ReadFile(s.root + "/etc/app.conf"); err != nil || string(data) != "a = edited\n" {
		t.Errorf("%q, %v", data, err)
	}
	s.is("ledger", s.ledger(), "app 1:1.1-1 before \"\"\nlib 1 before \"\"\nold 2 before \"1\"\n")
	// Another package needs one of them.
	s.dpkg("--install", s.make(t, s.dir, distro.Package{Name: "user", Version: "1", Fields: "Depends: lib"}))
	s.is("removed", s.remove(), "app: \nlib: user needs it\nold: the host had it before, in version 1\n")
	s.is("packages", s.has(), "app 1:1.1-1 config-files\nkept 9 installed\nlib 1 installed\nold 2 installed\nuser 1 installed\n")
	s.is("nothing more to remove", s.remove(), "")
}

// dpkg records a version without its epoch if that is 0: a second run finds the package.
func TestEpochZero(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	file := distro.Deb(t, s.dir, distro.Package{Name: "zero", Version: "0:1.0-1"})
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read, err := ospackage.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	zero := s.carry(distro.Package{Name: "zero", Version: "0:1.0-1"})
	zero.Version = read.Version // as the build lists it
	s.is("acts", acts(s.must(zero)), "zero install\n")
	s.is("again", acts(s.must(zero)), "zero \n")
	s.is("removed", s.remove(), "zero: \n")
}

// Everything that cannot be installed is refused before the first change.
func TestDpkgRefuses(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	s.dpkg("--install", s.make(t, s.dir, distro.Package{Name: "mta", Version: "1", Fields: "Provides: mail"}), s.make(t, s.dir, distro.Package{Name: "reader", Version: "1", Fields: "Conflicts: noise"}))
	p := func(name, fields string) bundle.SitePackage {
		return s.carry(distro.Package{Name: name, Version: "1", Fields: fields})
	}
	s.refused("app depends on lib", p("app", "Depends: lib (>= 2)"), p("lib", ""))
	s.refused("gone", p("fine", ""), p("app", "Pre-Depends: gone"))
	s.refused("conflicts with mail", p("app", "Conflicts: mail"))
	s.refused("considering removing mta in favour of app", p("app", "Conflicts: mta\nReplaces: mta\nProvides: mta"))
	s.refused("noise", p("noise", ""))
	other := p("app", "")
	other.Release = "ubuntu-24.04"
	s.refused("for other hosts (ubuntu-24.04 all): this host is debian-12", other)
	foreign := p("app", "")
	foreign.Arch = "s390x"
	s.refused("for debian-12 and s390x: this host is debian-12 and ", foreign)
	lied := p("app", "")
	lied.Version = "2"
	if _, err := s.install(lied); fault.ExitCode(err) != fault.Bundle {
		t.Errorf("a package that is not what the bundle says: %v", err)
	}
	// A package of the host that is not installed completely.
	broken := s.make(t, s.dir, distro.Package{Name: "broken", Version: "1", Scripts: map[string]string{"postinst": "exit 1"}})
	if out, err := distro.Dpkg(t, s.root, "--install", broken); err == nil {
		t.Fatal(out)
	}
	s.refused("broken is half-configured", p("app", ""))
}

// Triggers that wait since an earlier installation are no reason to refuse: dpkg processes them.
func TestWaitingTriggers(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	s.dpkg("--install", s.make(t, s.dir, distro.Package{Name: "watcher", Version: "1", Triggers: "interest /usr/share/thing\n", Scripts: map[string]string{"postinst": "exit 0"}}),
		s.make(t, s.dir, distro.Package{Name: "another", Version: "1", Triggers: "interest /usr/share/thing\ninterest /usr/share/watcher\n", Scripts: map[string]string{"postinst": "exit 0"}}))
	s.dpkg("--no-triggers", "--install", s.make(t, s.dir, distro.Package{Name: "thing", Version: "1"}), s.make(t, s.dir, distro.Package{Name: "watcher", Version: "2", Triggers: "interest /usr/share/thing\n", Scripts: map[string]string{"postinst": "exit 0"}}))
	if has := s.has(); !strings.Contains(has, "triggers-pending") || !strings.Contains(has, "triggers-awaited") {
		t.Fatalf("no trigger waits:\n%s", has)
	}
	s.must(s.carry(distro.Package{Name: "app", Version: "1", Fields: "Depends: thing, watcher"}))
	s.is("packages", s.has(), "another 1 installed\napp 1 installed\nthing 1 installed\nwatcher 2 installed\n")
}

// A package that pre-depends on another one of the file is unpacked when that is configured.
func TestPreDependencies(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	base := s.carry(distro.Package{Name: "base", Version: "1", Scripts: map[string]string{"postinst": `touch "$DPKG_ROOT/run/base"`}})
	top := s.carry(distro.Package{Name: "top", Version: "1", Fields: "Pre-Depends: base", Scripts: map[string]string{"preinst": `test -e "$DPKG_ROOT/run/base"`}}, 1)
	s.must(base, top)
	s.is("packages", s.has(), "base 1 installed\ntop 1 installed\n")
	s.is("removed", s.remove(), "base: \ntop: \n")
	s.is("packages", s.has(), "")
}

// A script that fails leaves a package that the next run completes, or reset removes. What was not begun is not in the ledger.
func TestFailingScript(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	fails := s.carry(distro.Package{Name: "fails", Version: "1", Scripts: map[string]string{"postinst": `test -e "$DPKG_ROOT/run/fixed" || { echo no device; exit 1; }`}})
	never := s.carry(distro.Package{Name: "never", Version: "1", Fields: "Pre-Depends: fails"}, 1)
	_, err := s.install(fails, never)
	if fault.ExitCode(err) != fault.Failure || !strings.Contains(err.Error(), "no device") || !strings.Contains(fault.Hint(err), "packages remove") {
		t.Errorf("%v", err)
	}
	s.is("ledger", s.ledger(), "fails 1 before \"\"\n")
	if _, err := s.install(fails); err == nil {
		t.Error("the script has succeeded")
	}
	if err := os.WriteFile(s.root+"/run/fixed", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.is("repaired", acts(s.must(fails, never)), "fails repair\nnever install\n")
	s.is("packages", s.has(), "fails 1 installed\nnever 1 installed\n")
	// The next time it fails, and is removed.
	s.dpkg("--purge", "never", "fails")
	if err := os.Remove(s.root + "/run/fixed"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.install(fails); err == nil {
		t.Error("the script has succeeded")
	}
	s.is("removed", s.remove(), "fails: \n")
	s.is("packages", s.has(), "")
}

// A trigger of another package fails: this run fails, and each later one reports it, although its own packages are installed.
func TestFailingTrigger(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	s.dpkg("--install", s.make(t, s.dir, distro.Package{Name: "watcher", Version: "1", Triggers: "interest /usr/share/thing\n", Scripts: map[string]string{"postinst": `test "$1" != triggered || { echo no space; exit 1; }`}}))
	thing := s.carry(distro.Package{Name: "thing", Version: "1"})
	if _, err := s.install(thing); fault.ExitCode(err) != fault.Failure || !strings.Contains(err.Error(), "no space") {
		t.Errorf("%v", err)
	}
	items := s.must(thing)
	s.is("again", acts(items), "thing \n")
	h, unlock := s.open()
	defer unlock()
	m, recorded, err := ospackages.Recorded(t.Context(), h)
	if err != nil || len(recorded) != 1 || recorded[0].Act != ospackages.Nothing {
		t.Fatalf("%v, %v", recorded, err)
	}
	for _, list := range [][]ospackages.Item{items, recorded} {
		if others, err := m.Incomplete(t.Context(), list); err != nil || others != "packages of this host are not installed completely: watcher is half-configured" {
			t.Errorf("%q, %v", others, err)
		}
	}
}

// dpkg is killed while it installs; the next run finishes, whether dpkg had written its records or only its journal.
func TestKilledDpkg(t *testing.T) {
	distro.UseDpkg(t)
	for _, script := range []string{"preinst", "postinst"} {
		s := newSite(t, "debian-12")
		kill := map[string]string{script: `test -e "$DPKG_ROOT/run/second" || { touch "$DPKG_ROOT/run/second"; kill -9 $PPID; }`}
		one, two := s.carry(distro.Package{Name: "one", Version: "1", Scripts: kill}), s.carry(distro.Package{Name: "two", Version: "1"})
		if _, err := s.install(one, two); err == nil {
			t.Fatal("dpkg was not killed")
		}
		s.must(one, two)
		s.is(script, s.has(), "one 1 installed\ntwo 1 installed\n")
		s.is("removed", s.remove(), "one: \ntwo: \n")
		s.is("packages", s.has(), "")
	}
}

// Held packages and packages that something else changed stay.
func TestChangedByOthers(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	held, upgraded := s.carry(distro.Package{Name: "held", Version: "1"}), s.carry(distro.Package{Name: "upgraded", Version: "1"})
	s.must(held, upgraded)
	set := exec.Command("dpkg", "--root="+s.root, "--set-selections")
	set.Stdin = strings.NewReader("held hold\n")
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.dpkg("--install", s.make(t, s.dir, distro.Package{Name: "upgraded", Version: "2"}))
	held2, third := s.carry(distro.Package{Name: "held", Version: "2"}), s.carry(distro.Package{Name: "upgraded", Version: "3"})
	s.is("acts", acts(s.must(held2)), "held keep\n")
	s.must(third)
	s.is("ledger", s.ledger(), "held 1 before \"\"\nupgraded 3 before \"2\"\n")
	s.is("removed", s.remove(), "held: it was set on hold\nupgraded: the host had it before, in version 2\n")
}

// Another process has the lock of dpkg: a command that waits names the process, and continues when the lock is free or the user interrupts.
func TestLock(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	p := s.carry(distro.Package{Name: "app", Version: "1"})
	holder := exec.Command("perl", "-e", `use Fcntl; open my $f, "+>", $ARGV[0]; my $l = pack("s s l! l! i", F_WRLCK, 0, 0, 0, 0); fcntl($f, F_SETLK, $l) or die $!; $| = 1; print "locked\n"; <STDIN>`, s.root+"/var/lib/dpkg/lock-frontend")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	h, unlock := s.open()
	defer unlock()
	var said []string
	ctx, cancel := context.WithCancel(t.Context())
	m, err := ospackages.New(h, "deb", func(text string) {
		said = append(said, text)
		cancel()
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Install(ctx, []bundle.SitePackage{p}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if len(said) == 0 || !strings.Contains(said[0], "which perl (process ") {
		t.Errorf("%q", said)
	}
	in.Close()
	if err := holder.Wait(); err != nil {
		t.Fatal(err)
	}
	unlock()
	s.must(p)
	var free unix.Flock_t
	free.Type = unix.F_WRLCK
	f, err := os.OpenFile(s.root+"/var/lib/dpkg/lock-frontend", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &free); err != nil {
		t.Errorf("the lock is not released: %v", err)
	}
}

func TestRPM(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "rpm")
	s := newSite(t, "rhel-9")
	if err := os.WriteFile(s.root+"/etc/os-release", []byte("ID=\"rhel\"\nVERSION_ID=\"9.4\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	rpm := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("rpm", append([]string{"--root=" + s.root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	rpm("--initdb")
	rpm("-U", s.make(t, s.dir, distro.Package{Name: "kept", Version: "9-1"}), s.make(t, s.dir, distro.Package{Name: "old", Version: "1-1"}))
	app := s.carry(distro.Package{Name: "app", Version: "1.0-1", Fields: "Requires: lib >= 1, old >= 2"})
	lib, newer, older := s.carry(distro.Package{Name: "lib", Version: "1-1"}), s.carry(distro.Package{Name: "old", Version: "2-1"}), s.carry(distro.Package{Name: "kept", Version: "8-1"})
	s.refused("lib >= 1 is needed by app", app, newer)
	s.refused("conflicts with", s.carry(distro.Package{Name: "bad", Version: "1-1", Fields: "Conflicts: old"}))
	s.refused("would remove old 1-1", s.carry(distro.Package{Name: "bad", Version: "1-1", Fields: "Obsoletes: old < 5"}))
	s.is("acts", acts(s.must(app, lib, newer, older)), "app install\nlib install\nold upgrade\nkept keep\n")
	s.is("again", acts(s.must(app, lib, newer, older)), "app \nlib \nold \nkept keep\n")
	rpm("-U", s.make(t, s.dir, distro.Package{Name: "user", Version: "1-1", Fields: "Requires: lib"}))
	s.is("removed", s.remove(), "app: \nlib: user-1-1.noarch needs it\nold: the host had it before, in version 1-1\n")
	if has := s.has(); strings.Contains(has, "app") || !strings.Contains(has, "old 2-1") || !strings.Contains(has, "lib 1-1") {
		t.Error(has)
	}
	epoch := s.carry(distro.Package{Name: "epoch", Version: "1-1", Fields: "Epoch: 3"})
	epoch.Version = "3:1-1"
	s.must(epoch)
	s.is("ledger", s.ledger(), "epoch 3:1-1 before \"\"\n")
	fails := s.carry(distro.Package{Name: "fails", Version: "1-1", Scripts: map[string]string{"pre -p <lua>": "error('no device')"}})
	if _, err := s.install(fails); fault.ExitCode(err) != fault.Failure {
		t.Errorf("%v", err)
	}
	s.is("ledger", s.ledger(), "epoch 3:1-1 before \"\"\n")
	s.is("removed", s.remove(), "epoch: \n")
}

// A newer file whose installation fails before dpkg begins with a package leaves it Airlift's: reset removes it.
func TestFailedUpgrade(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	s.must(s.carry(distro.Package{Name: "app", Version: "1"}))
	fails := s.carry(distro.Package{Name: "fails", Version: "1", Scripts: map[string]string{"preinst": "exit 1"}})
	app2 := s.carry(distro.Package{Name: "app", Version: "2"}, 1)
	for range 2 {
		if _, err := s.install(fails, app2); err == nil {
			t.Fatal("the script has succeeded")
		}
	}
	s.is("removed", s.remove(), "app: \n")
	s.is("packages", s.has(), "")
	// After a success, the former version is another one's.
	s.must(s.carry(distro.Package{Name: "app", Version: "1"}))
	s.must(app2)
	s.dpkg("--install", s.make(t, s.dir, distro.Package{Name: "app", Version: "1"}))
	s.is("removed", s.remove(), "app: Airlift installed 2, and something else changed it\n")
}

// dpkg is killed while it unpacks, or while it replaces Airlift's former version: reset removes what is half installed.
func TestRemoveHalfInstalled(t *testing.T) {
	distro.UseDpkg(t)
	for _, script := range []string{"preinst", "postinst"} {
		s := newSite(t, "debian-12")
		killed := map[string]string{script: `kill -9 $PPID`}
		if _, err := s.install(s.carry(distro.Package{Name: "app", Version: "1", Scripts: killed})); err == nil {
			t.Fatal("dpkg was not killed")
		}
		s.is(script, s.remove(), "app: \n")
		s.is("packages", s.has(), "")
		s.must(s.carry(distro.Package{Name: "app", Version: "1"}))
		if _, err := s.install(s.carry(distro.Package{Name: "app", Version: "2", Scripts: killed})); err == nil {
			t.Fatal("dpkg was not killed")
		}
		s.is(script, s.remove(), "app: \n")
		s.is("packages", s.has(), "")
	}
}

// The host's dpkg.cfg replaces configuration files; edited ones stay nevertheless.
func TestHostReplacesConfiguration(t *testing.T) {
	distro.UseDpkg(t)
	if err := os.WriteFile(os.Getenv("HOME")+"/.dpkg.cfg", []byte("force-script-chrootless\nforce-confnew\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, "debian-12")
	s.must(s.carry(distro.Package{Name: "app", Version: "1", Conffile: "a = 1\n"}))
	if err := os.WriteFile(s.root+"/etc/app.conf", []byte("a = edited\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.must(s.carry(distro.Package{Name: "app", Version: "2", Conffile: "a = 2\n"}))
	if data, err := os.ReadFile(s.root + "/etc/app.conf"); err != nil || string(data) != "a = edited\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// Packages for all of a release and others for one of its minor releases may have one in two versions: the host gets the one that
// is for its own minor release.
func TestMinorRelease(t *testing.T) {
	h, err := host.Open(distro.Root(t, "rocky-9.4"))
	if err != nil {
		t.Fatal(err)
	}
	list := []bundle.SitePackage{{Name: "app", Version: "2", Release: "rocky-9"}, {Name: "lib", Version: "1", Release: "rocky-9"}, {Name: "app", Version: "1", Release: "rocky-9.4"}}
	wanted, err := ospackages.ForHost(h, list)
	if err != nil || len(wanted) != 2 || wanted[0].Name != "lib" || wanted[1].Version != "1" {
		t.Errorf("%v, %v", wanted, err)
	}
}

// Debian's testing and unstable have no VERSION_ID.
func TestReleaseWithoutVersion(t *testing.T) {
	root := distro.Root(t, "debian-13")
	if err := os.WriteFile(root+"/etc/os-release", []byte("PRETTY_NAME=\"Debian GNU/Linux forky/sid\"\nVERSION_CODENAME=forky\nID=debian\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if is := ospackages.Release(h); is != "debian-forky" {
		t.Errorf("%q", is)
	}
}

// What rpm would do to packages that hosts have in several versions, conditions with "or", and scripts that fail at the end.
func TestRPMOnHosts(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "rpm")
	s := newSite(t, "rhel-9")
	rpm := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("rpm", append([]string{"--root=" + s.root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	rpm("--initdb")
	kernel := func(version string) distro.Package {
		return distro.Package{Name: "kernel-core", Version: version, Fields: "Provides: installonlypkg(kernel)"}
	}
	rpm("-U", s.make(t, s.dir, kernel("5-1")))
	s.refused("kernel-core 6-1 would remove kernel-core 5-1", s.carry(kernel("6-1")))

	lib, free := s.carry(distro.Package{Name: "lib", Version: "1-1"}), s.carry(distro.Package{Name: "free", Version: "1-1"})
	s.must(lib, free)
	rpm("-U", s.make(t, s.dir, distro.Package{Name: "user", Version: "1-1", Fields: "Requires: (lib or other)"}))
	s.is("removed", s.remove(), "lib: user-1-1.noarch needs (lib or other)\nfree: \n")

	h, unlock := s.open()
	defer unlock()
	var said []string
	m, err := ospackages.New(h, "rpm", func(text string) { said = append(said, text) })
	if err != nil {
		t.Fatal(err)
	}
	late := s.carry(distro.Package{Name: "late", Version: "1-1", Scripts: map[string]string{"post -p <lua>": "error('no device')"}})
	_, err = m.Install(t.Context(), []bundle.SitePackage{late}, func(ctx context.Context, entries []string) (map[string]string, error) {
		return map[string]string{late.Entry: s.files[late.Entry]}, nil
	})
	if err != nil || !strings.Contains(strings.Join(said, "\n"), "no device") {
		t.Errorf("%q, %v", said, err)
	}
}

// rpm is killed while it installs, and while it replaces Airlift's former version or the host's: the next run finishes, and reset removes what
// Airlift installed.
func TestKilledRPM(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "rpm")
	const kill = `local f = io.open('/run/second'); if f then f:close() else io.open('/run/second', 'w'):close(); posix.kill(posix.getprocessid('pid'), 9) end`
	built := map[string]string{} // rpmbuild takes long
	build := func(t testing.TB, _ string, p distro.Package) string {
		key := fmt.Sprint(p)
		if built[key] == "" {
			built[key] = distro.RPM(t, t.TempDir(), p)
		}
		return built[key]
	}
	for _, script := range []string{"pre -p <lua>", "post -p <lua>"} {
		for _, before := range []string{"", "the host's", "Airlift's"} {
			for _, repairs := range []bool{true, false} {
				s := newSite(t, "rhel-9")
				s.make = build
				former := distro.Package{Name: "app", Version: "1-1"}
				if out, err := exec.Command("rpm", "--root="+s.root, "--initdb").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				switch before {
				case "the host's":
					if out, err := exec.Command("rpm", "--root="+s.root, "-U", s.make(t, s.dir, former)).CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
				case "Airlift's":
					s.must(s.carry(former))
				}
				killed := s.carry(distro.Package{Name: "app", Version: "2-1", Scripts: map[string]string{script: kill}})
				if _, err := s.install(killed); err == nil {
					t.Fatal("rpm was not killed")
				}
				if repairs {
					s.must(killed)
					s.is(script+" "+before, s.has(), "app 2-1 installed\n")
					s.is("again", acts(s.must(killed)), "app \n")
				}
				left := s.remove()
				if has := s.has(); before != "the host's" && has != "" || before == "the host's" && (!strings.Contains(has, "app ") || !strings.Contains(left, "the host had it before")) {
					t.Errorf("%s, %q, repairs %t: reset left\n%s%s", script, before, repairs, has, left)
				}
			}
		}
	}
}

// A host whose /usr is read-only is refused before the first change.
func TestReadOnly(t *testing.T) {
	distro.UseDpkg(t)
	s := newSite(t, "debian-12")
	if err := unix.Mount("tmpfs", s.root+"/usr", "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(s.root+"/usr", 0); err != nil {
			t.Error(err)
		}
	})
	s.refused("/usr is read-only", s.carry(distro.Package{Name: "app", Version: "1"}))
}
