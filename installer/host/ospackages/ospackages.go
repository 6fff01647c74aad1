// Package ospackages installs packages of a bundle with the host's own package manager, dpkg or rpm, and removes the packages that it
// installed. It needs no network: whatever a package needs must be in the bundle or on the host.
package ospackages

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/internal/fault"
)

// What is done with a package.
const (
	Install = "install" // the host does not have it
	Upgrade = "upgrade" // the host has an older version
	Repair  = "repair"  // the host has it, and it is not installed completely
	Keep    = "keep"    // the host has a newer version, or holds its version
	Nothing = ""        // the host has it
)

// An Item is a package of the bundle and what is done with it on this host.
type Item struct {
	bundle.SitePackage
	Has    string // the version that the host has, "" if none
	Act    string
	Reason string // why it is kept, or needs repair
}

func (i Item) String() string {
	switch i.Act {
	case Install:
		return i.Name + " " + i.Version
	case Upgrade:
		return i.Name + " " + i.Version + ", which replaces " + i.Has
	case Repair:
		return i.Name + " " + i.Version + ": " + i.Reason
	case Keep:
		return i.Name + " " + i.Has + " stays: " + i.Reason
	}
	return i.Name + " " + i.Has + " is installed"
}

// Changes returns the items that change the host.
func Changes(items []Item) []Item {
	return slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return i.Act == Nothing || i.Act == Keep })
}

// A state is what the package manager knows of a package.
type state struct {
	version string
	broken  string // why it is not installed completely, "" if it is
	held    bool
	former  []string // older versions that are installed, too
}

// A tool is a package manager.
type tool interface {
	name() string
	// database is the directory of its records.
	database() string
	// installed returns what the host has of its own architecture, by name.
	installed(context.Context) (map[string]state, error)
	architecture(context.Context) (string, error)
	// newer reports whether version a is newer than b.
	newer(ctx context.Context, a, b string) (bool, error)
	// lock waits until no other process changes packages, and keeps others from it.
	lock(context.Context) (unlock func(), err error)
	// describe returns what is in a file.
	describe(ctx context.Context, file string) (name, version, arch string, err error)
	// check refuses files that cannot be installed on this host, and changes nothing. dir is a directory for its own files.
	check(ctx context.Context, dir string, stages [][]string) error
	install(ctx context.Context, stages [][]string) error
	// needed returns why packages cannot be removed: others need them. It changes nothing.
	needed(ctx context.Context, names []string) (map[string]string, error)
	// keepsConfiguration reports whether configuration files of a package stay when it is removed.
	keepsConfiguration(ctx context.Context, name string) (bool, error)
	remove(ctx context.Context, names []string) error
}

// A Manager installs and removes packages on a host.
type Manager struct {
	host *host.Host
	tool tool
}

// New returns a Manager for packages of a format, "deb" or "rpm". report, which may be nil, gets what it waits for, each
// text once, and what a script reported that fails nothing.
func New(h *host.Host, format string, report func(string)) (*Manager, error) {
	last := ""
	r := &runner{host: h, report: func(text string) {
		if report != nil && text != last {
			report(text)
		}
		last = text
	}}
	var t tool = dpkg{r}
	if format == "rpm" {
		t = rpm{r}
	}
	if err := r.find(t.name()); err != nil {
		return nil, fault.New(fault.Preflight, "this host has no %s, and the packages are for it: %w", t.name(), err).
			Hint("build the bundle with packages for this host's distribution")
	}
	return &Manager{h, t}, nil
}

// ofLedger returns a Manager for the packages that Airlift installed; nil if there are none.
func ofLedger(h *host.Host, report func(string)) (*Manager, error) {
	list := h.Records().Entries(ledger.Package)
	if len(list) == 0 {
		return nil, nil
	}
	format := "deb"
	if p := list[0].Package; p != nil && p.Manager == "rpm" {
		format = "rpm"
	}
	return New(h, format, report)
}

// Release returns ID-VERSION_ID of os-release(5), with VERSION_CODENAME if there is no VERSION_ID, as in Debian's testing. There is no
// dash if one part is missing.
func Release(h *host.Host) string {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		data, err := os.ReadFile(h.Path(file))
		if err != nil {
			continue
		}
		fields := map[string]string{}
		for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
			key, value, _ := strings.Cut(s.Text(), "=")
			fields[key] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
		return strings.Trim(fields["ID"]+"-"+cmp.Or(fields["VERSION_ID"], fields["VERSION_CODENAME"]), "-")
	}
	return "unknown"
}

// ForHost returns the packages for the release of this host. One for its minor release precedes one for all of them. It refuses a host for whose release there are none, if there are
// some for other releases.
func ForHost(h *host.Host, list []bundle.SitePackage) (wanted []bundle.SitePackage, err error) {
	is := Release(h)
	var releases []string
	for _, p := range list {
		releases = append(releases, p.Release+" "+p.Arch)
		better := func(o bundle.SitePackage) bool {
			return o.Name == p.Name && bundle.ReleaseFits(o.Release, is) && len(o.Release) > len(p.Release)
		}
		if bundle.ReleaseFits(p.Release, is) && !slices.ContainsFunc(list, better) {
			wanted = append(wanted, p)
		}
	}
	if len(list) > 0 && len(wanted) == 0 {
		slices.Sort(releases)
		return nil, fault.New(fault.Preflight, "the packages in this file are for other hosts (%s): this host is %s", strings.Join(slices.Compact(releases), ", "), is).
			Hint("build the bundle with packages for " + is + "; to install without packages: --skip-phases packages")
	}
	return wanted, nil
}

// Plan returns what is done with packages for the release of this host. It changes nothing. It refuses packages of another
// architecture.
func (m *Manager) Plan(ctx context.Context, wanted []bundle.SitePackage) (items []Item, err error) {
	arch, err := m.tool.architecture(ctx)
	if err != nil {
		return nil, err
	}
	has, err := m.tool.installed(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range wanted {
		if p.Arch != arch && p.Arch != "all" && p.Arch != "noarch" {
			return nil, fault.New(fault.Preflight, "the package %s %s is for %s and %s: this host is %s and %s", p.Name, p.Version, p.Release, p.Arch, Release(m.host), arch).
				Hint("use a bundle for this host's architecture")
		}
		i := Item{SitePackage: p, Has: has[p.Name].version}
		if i.Act, i.Reason, err = m.decide(ctx, p, has[p.Name]); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, nil
}

// decide returns what is done with a package, and why.
func (m *Manager) decide(ctx context.Context, p bundle.SitePackage, has state) (act, reason string, err error) {
	if has.version == "" {
		return Install, "", nil
	}
	if has.version != p.Version {
		newer, err := m.tool.newer(ctx, has.version, p.Version)
		switch {
		case err != nil:
			return "", "", err
		case newer:
			return Keep, "it is newer than " + p.Version + " in this file", nil
		case has.held:
			return Keep, "the host holds it, and this file has " + p.Version, nil
		case has.broken == "":
			return Upgrade, "", nil
		}
	}
	if why := m.incomplete(p.Name, has); why != "" {
		return Repair, why, nil
	}
	return Nothing, "", nil
}

// incomplete returns why a package is not installed completely, or "". rpm itself does not know that it was killed before it removed a
// former version: the ledger has that version.
func (m *Manager) incomplete(name string, has state) string {
	if e, ok := m.host.Records().Find(ledger.Package, name); ok && has.broken == "" && e.Package != nil && e.Package.Version == has.version {
		for _, v := range has.former {
			if v == e.Package.Before || v == e.Package.Replaces {
				return "installed next to " + v + ", because " + m.tool.name() + " was interrupted"
			}
		}
	}
	return has.broken
}

// Unpack writes the entries of packages to the host, and returns their paths by the names of the entries.
type Unpack func(ctx context.Context, entries []string) (map[string]string, error)

// Install installs what the host does not have of the packages, for the release of this host. Before the first change it has
// checked all of them.
//
// If nothing is to be changed, it does not refuse other packages that are not installed completely: Incomplete finds them.
func (m *Manager) Install(ctx context.Context, wanted []bundle.SitePackage, unpack Unpack) (items []Item, err error) {
	if items, err = m.Plan(ctx, wanted); err != nil || len(Changes(items)) == 0 {
		return items, err
	}
	unlock, err := m.tool.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if items, err = m.Plan(ctx, wanted); err != nil || len(Changes(items)) == 0 { // another process may have changed something
		return items, err
	}
	if err := m.checkHost(ctx, items); err != nil {
		return nil, err
	}
	if err := m.host.BeginPackages(); err != nil {
		return nil, err
	}
	defer func() {
		if ended := m.host.EndPackages(); err == nil {
			err = ended
		}
	}()
	stages, err := m.checkPackages(ctx, items, m.host, unpack)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, i := range Changes(items) {
		if err := m.record(i); err != nil {
			return nil, err
		}
	}
	err = m.host.Change(m.tool.database(), func() error { return m.tool.install(ctx, stages) })
	if err != nil {
		if forget := m.forgetMissing(ctx, Changes(items)); forget != nil {
			return nil, forget
		}
		return nil, err
	}
	for _, i := range Changes(items) {
		i.Has = i.Version // nothing is replaced any more
		if err := m.record(i); err != nil {
			return nil, err
		}
	}
	return items, ctx.Err()
}

// Check refuses what Install would refuse, and changes nothing on the host: unpack writes the packages to dir, a new directory.
func (m *Manager) Check(ctx context.Context, items []Item, dir *host.Host, unpack Unpack) error {
	if len(Changes(items)) == 0 {
		return nil
	}
	if err := m.checkHost(ctx, items); err != nil {
		return err
	}
	if err := dir.MakeDir(host.PackagesDir, 0o700); err != nil {
		return err
	}
	_, err := m.checkPackages(ctx, items, dir, unpack)
	return err
}

// checkHost refuses a host on which the package manager would fail, or would continue with other packages.
func (m *Manager) checkHost(ctx context.Context, items []Item) error {
	others, err := m.Incomplete(ctx, items)
	if err != nil {
		return err
	}
	if others != "" {
		return fault.New(fault.Preflight, "%s", others).Hint(Complete)
	}
	var usr unix.Statfs_t
	if err := unix.Statfs(m.host.Path("/usr"), &usr); err == nil && usr.Flags&unix.ST_RDONLY != 0 {
		return fault.New(fault.Preflight, "packages cannot be installed on this host: /usr is read-only").
			Hint("make it writable, for example with mount -o remount,rw /usr; to install without packages: --skip-phases packages")
	}
	return nil
}

// checkPackages unpacks the packages to dir, runs the check of the package manager, and returns their paths by stages.
func (m *Manager) checkPackages(ctx context.Context, items []Item, dir *host.Host, unpack Unpack) ([][]string, error) {
	stages, err := m.files(ctx, Changes(items), unpack)
	if err != nil {
		return nil, err
	}
	return stages, m.tool.check(ctx, dir.Path(host.PackagesDir), stages)
}

// Complete is what to do about other packages that are not installed completely.
const Complete = "complete them first: dpkg --configure -a"

// Incomplete reports other packages of the host that are not installed completely, such as one whose trigger failed: the package manager would
// continue with them. It is "" if there are none.
func (m *Manager) Incomplete(ctx context.Context, items []Item) (string, error) {
	has, err := m.tool.installed(ctx)
	if err != nil {
		return "", err
	}
	var list []string
	for name, s := range has {
		_, ours := m.host.Records().Find(ledger.Package, name)
		if s.broken != "" && !ours && !slices.ContainsFunc(items, func(i Item) bool { return i.Name == name }) {
			list = append(list, name+" is "+s.broken)
		}
	}
	slices.Sort(list)
	if len(list) == 0 {
		return "", nil
	}
	return "packages of this host are not installed completely: " + strings.Join(list, ", "), nil
}

// files unpacks the packages, compares them with the bundle's manifest, and returns their paths by stages.
func (m *Manager) files(ctx context.Context, items []Item, unpack Unpack) (stages [][]string, err error) {
	var entries []string
	for _, i := range items {
		entries = append(entries, i.Entry)
	}
	paths, err := unpack(ctx, entries)
	if err != nil {
		return nil, err
	}
	last := -1
	for _, i := range items {
		name, version, arch, err := m.tool.describe(ctx, paths[i.Entry])
		if err != nil {
			return nil, err
		}
		if name != i.Name || version != i.Version || arch != i.Arch {
			return nil, fault.New(fault.Bundle, "the package %s %s (%s) in this file is %s %s (%s)", i.Name, i.Version, i.Arch, name, version, arch).Hint("build the bundle again")
		}
		if i.Stage != last {
			stages, last = append(stages, nil), i.Stage
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], paths[i.Entry])
	}
	return stages, nil
}

// record writes to the ledger what will be installed.
func (m *Manager) record(i Item) error {
	is := ledger.PackageVersions{Manager: m.tool.name(), Version: i.Version, Before: i.Has}
	if old, ok := m.host.Records().Find(ledger.Package, i.Name); ok && old.Package != nil {
		unchanged := i.Has != "" && (i.Has == old.Package.Version || i.Has == old.Package.Replaces) // nobody else has changed it since
		if unchanged || i.Act != Upgrade {
			is.Before = old.Package.Before
		}
		if unchanged && i.Has != i.Version {
			is.Replaces = i.Has
		}
	}
	return m.host.Records().Record(ledger.Entry{Kind: ledger.Package, Name: i.Name, Package: &is})
}

// forgetMissing takes the packages from the ledger that a failed installation has not begun.
func (m *Manager) forgetMissing(ctx context.Context, items []Item) error {
	has, err := m.tool.installed(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	for _, i := range items {
		if has[i.Name].version == "" {
			if err := m.host.Records().Forget(ledger.Package, i.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// A Removal is a package that Airlift installed, and what reset does with it.
type Removal struct {
	Name, Version string // that the host has
	// Leave is why it stays; "" if it is removed.
	Leave string
	// Configuration is set if its configuration files stay when it is removed.
	Configuration bool
}

// Removals lists the packages in the ledger that the host still has. It changes nothing.
func Removals(ctx context.Context, h *host.Host) ([]Removal, error) {
	m, err := ofLedger(h, nil)
	if m == nil || err != nil {
		return nil, err
	}
	return m.removals(ctx)
}

func (m *Manager) removals(ctx context.Context) (list []Removal, err error) {
	has, err := m.tool.installed(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range m.host.Records().Entries(ledger.Package) {
		s, p := has[e.Name], e.Package
		if s.version == "" || p == nil {
			continue
		}
		r := Removal{Name: e.Name, Version: s.version}
		switch {
		case p.Before != "":
			r.Leave = "the host had it before, in version " + p.Before
		case s.version != p.Version && s.version != p.Replaces, slices.ContainsFunc(s.former, func(v string) bool { return v != p.Replaces }):
			r.Leave = "Airlift installed " + p.Version + ", and something else changed it"
		case s.held:
			r.Leave = "it was set on hold"
		default:
			names = append(names, e.Name)
		}
		list = append(list, r)
	}
	if len(names) == 0 {
		return list, nil
	}
	needed, err := m.tool.needed(ctx, names)
	for n, r := range list {
		if why := needed[r.Name]; why != "" && r.Leave == "" {
			list[n].Leave = why
		}
		if list[n].Leave == "" && err == nil {
			list[n].Configuration, err = m.tool.keepsConfiguration(ctx, r.Name)
		}
	}
	return list, err
}

// Remove removes the packages that Airlift installed and that nothing else needs or has changed, and forgets the others. It
// returns what it removed and left.
func Remove(ctx context.Context, h *host.Host, report func(string)) (list []Removal, err error) {
	m, err := ofLedger(h, report)
	if m == nil || err != nil {
		return nil, err
	}
	unlock, err := m.tool.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if list, err = m.removals(ctx); err != nil {
		return nil, err
	}
	var names []string
	for _, r := range list {
		if r.Leave == "" {
			names = append(names, r.Name)
		}
	}
	if len(names) > 0 {
		if err := h.Change(m.tool.database(), func() error { return m.tool.remove(ctx, names) }); err != nil {
			return list, err
		}
	}
	for _, e := range h.Records().Entries(ledger.Package) {
		if err := h.Records().Forget(ledger.Package, e.Name); err != nil {
			return list, err
		}
	}
	return list, ctx.Err()
}

// Recorded returns the packages that Airlift installed, as far as the ledger knows them, with what the host has now.
func Recorded(ctx context.Context, h *host.Host) (m *Manager, items []Item, err error) {
	m, err = ofLedger(h, nil)
	if m == nil || err != nil {
		return nil, nil, err
	}
	has, err := m.tool.installed(ctx)
	for _, e := range h.Records().Entries(ledger.Package) {
		if e.Package == nil {
			continue
		}
		i := Item{SitePackage: bundle.SitePackage{Name: e.Name, Version: e.Package.Version}, Has: has[e.Name].version}
		switch {
		case i.Has == "":
			i.Act = Install
		case m.incomplete(e.Name, has[e.Name]) != "":
			i.Act, i.Reason = Repair, m.incomplete(e.Name, has[e.Name])
		}
		items = append(items, i)
	}
	return m, items, err
}

// RebootRequired returns the packages because of which the host asks for a reboot, as Debian's and Ubuntu's packages record it.
func RebootRequired(h *host.Host) (names []string, required bool) {
	if _, err := os.Stat(h.Path("/run/reboot-required")); err != nil {
		return nil, false
	}
	data, _ := os.ReadFile(h.Path("/run/reboot-required.pkgs"))
	return slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(data))))), true
}
