package ospackage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Problem is why a package cannot be installed.
type Problem struct {
	Package *Package
	Message string
	Hint    string
	// Unsure is set if hosts may have what is missing: there is no list of what they have, or it does not tell.
	Unsure bool
}

// Check returns why packages cannot be installed together on hosts of an architecture with what is installed, or with what is
// not known if that is nil. Packages that the hosts have in a newer version stay as they are.
func Check(set []*Package, arch string, installed *Installed) (list []Problem) {
	w := world{arch: debArches[arch], rpm: len(set) > 0 && set[0].Format == RPM, installed: installed}
	for _, p := range set {
		if installed != nil {
			if has := installed.version(p.Name); has != "" {
				if order, err := Compare(p.Format, has, p.Version); err == nil && order > 0 {
					continue
				}
			}
		}
		w.added = append(w.added, p)
	}
	for _, p := range w.added {
		list = append(list, w.missing(p)...)
		list = append(list, w.conflicts(p)...)
	}
	return append(append(list, w.sameFiles()...), w.broken()...)
}

// A world is the packages that a host has after the installation.
type world struct {
	arch      string // of the host, as dpkg names it
	rpm       bool
	installed *Installed
	added     []*Package
}

// packages lists all that can satisfy a relation.
func (w *world) packages() []*Package {
	list := slices.Clone(w.added)
	if w.installed == nil {
		return list
	}
	return append(list, w.kept()...)
}

// kept lists the installed packages that are not replaced.
func (w *world) kept() (list []*Package) {
	for _, p := range w.installed.packages {
		replaced := func(a *Package) bool { return a.Name == p.Name && (p.Arch == "" || w.native(p) && w.native(a)) }
		if !slices.ContainsFunc(w.added, replaced) {
			list = append(list, p)
		}
	}
	return list
}

// native reports whether a package is of the host's own architecture.
func (w *world) native(p *Package) bool { return p.Arch == "all" || p.Arch == w.arch || p.Arch == "" }

// missing returns the conditions of a package that nothing satisfies.
func (w *world) missing(p *Package) (list []Problem) {
	for _, c := range p.requires {
		if w.satisfied(c, p) {
			continue
		}
		found := Problem{Package: p, Message: fmt.Sprintf("%s needs %s", p, c)}
		switch {
		case strings.HasPrefix(c[0].name, "("):
			found.Unsure, found.Hint = true, "a condition with \"and\", \"or\" or \"if\" is checked by rpm on the host"
		case w.installed == nil:
			found.Unsure = true
		case w.installed.namesOnly:
			found.Hint = "add the package; if a package of the hosts provides it, give a list that has what packages provide: " + WriteDeb
		default:
			found.Hint = "add the package: neither the hosts nor the bundle have it"
		}
		list = append(list, found)
	}
	return list
}

// satisfied reports whether one of the relations holds, for a package.
func (w *world) satisfied(c clause, of *Package) bool {
	return slices.ContainsFunc(c, func(r relation) bool {
		if w.installed != nil && w.rpm {
			if strings.HasPrefix(r.name, "/") && slices.ContainsFunc(spellings(r.name), func(name string) bool { return w.installed.files[name] }) || slices.ContainsFunc(w.installed.capabilities, func(has relation) bool {
				return w.stays(has) && has.name == r.name && overlap(has, r)
			}) {
				return true
			}
		}
		return slices.ContainsFunc(w.packages(), func(p *Package) bool { return w.fits(p, r, of) })
	})
}

// stays reports whether a capability of the hosts is not the name of a package that is replaced.
func (w *world) stays(has relation) bool {
	return !slices.ContainsFunc(w.added, func(p *Package) bool { return p.Name == has.name })
}

// fits reports whether a package satisfies a relation of another one.
func (w *world) fits(p *Package, r relation, of *Package) bool {
	if w.rpm {
		has := func(name string) bool { _, ok := p.files[name]; return ok }
		if strings.HasPrefix(r.name, "/") && slices.ContainsFunc(spellings(r.name), has) {
			return true
		}
		return slices.ContainsFunc(p.provides, func(has relation) bool { return has.name == r.name && overlap(has, r) })
	}
	if p.Name == r.name && w.fitsArch(p, r, of) && holds(p.Version, r) {
		return true
	}
	return slices.ContainsFunc(p.provides, func(has relation) bool {
		return has.name == r.name && w.fitsArch(p, r, of) && (r.op == "" || has.op == "=" && holds(has.version, r))
	})
}

// fitsArch reports whether the architecture of a package is the one that a relation means.
func (w *world) fitsArch(p *Package, r relation, of *Package) bool {
	switch {
	case p.Arch == "": // a list of names only
		return true
	case r.arch == "any":
		return p.multiArch == "allowed"
	case r.arch != "" && r.arch != "native":
		return p.Arch == r.arch || p.Arch == "all" && r.arch == w.arch
	case p.multiArch == "foreign" && r.arch == "":
		return true
	}
	return w.native(p) == w.native(of) && (w.native(p) || p.Arch == of.Arch)
}

// holds reports whether a version of dpkg is one that a relation means.
func holds(version string, r relation) bool {
	if r.op == "" {
		return true
	}
	order, err := Compare(Deb, version, r.version)
	return err == nil && inOrder(order, r.op)
}

func inOrder(order int, op string) bool {
	return order < 0 && strings.HasPrefix(op, "<") || order > 0 && strings.HasPrefix(op, ">") || order == 0 && strings.HasSuffix(op, "=")
}

// overlap reports whether two ranges of versions have one in common, by the rules of rpm.
func overlap(a, b relation) bool {
	if a.op == "" || b.op == "" {
		return true
	}
	x, y := a.version, b.version
	if !strings.Contains(x, "-") || !strings.Contains(y, "-") { // without a release, every release is meant
		x, _, _ = strings.Cut(x, "-")
		y, _, _ = strings.Cut(y, "-")
	}
	order, err := Compare(RPM, x, y)
	has := func(r relation, op string) bool { return strings.Contains(r.op, op) }
	switch {
	case err != nil:
		return false
	case order < 0:
		return has(a, ">") || has(b, "<")
	case order > 0:
		return has(a, "<") || has(b, ">")
	}
	return has(a, "=") && has(b, "=") || has(a, "<") && has(b, "<") || has(a, ">") && has(b, ">")
}

// removeFirst is the beginning of a hint: Airlift removes no package of a host.
const removeFirst = "leave it out, or remove the other package from the hosts first, and write the list again: dpkg --remove "

// conflicts returns the packages that prevent the installation of a package, and the packages that it would remove.
func (w *world) conflicts(p *Package) (list []Problem) {
	add := func(hint, format string, args ...any) {
		list = append(list, Problem{Package: p, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	reported := map[*Package]bool{}
	for _, r := range p.conflicts {
		for _, other := range w.packages() {
			switch {
			case other.Name == p.Name || reported[other] || !w.fits(other, w.anyArch(r, other), other):
			case slices.Contains(w.added, other):
				add("leave one of them out", "%s conflicts with %s, because of %s", p, other, r)
			default:
				reported[other] = true
				add(removeFirst+other.Name, "%s conflicts with %s of the hosts, because of %s", p, other, r)
			}
		}
		if w.rpm && w.onHosts(r) && r.name != p.Name {
			add("leave it out, or remove the other package from the hosts", "%s conflicts with %s, which the hosts have", p, r)
		}
	}
	for _, r := range p.obsoletes {
		if w.onHosts(r) && r.name != p.Name {
			add("leave it out: Airlift installs no package that removes others of the hosts", "%s replaces %s, which the hosts have", p, r)
		}
	}
	if w.rpm || w.installed == nil {
		return list
	}
	for _, other := range w.kept() {
		for _, r := range other.conflicts {
			if other.Name != p.Name && !reported[other] && w.fits(p, w.anyArch(r, p), p) {
				reported[other] = true
				add(removeFirst+other.Name, "%s of the hosts conflicts with %s, because of %s", other, p, r)
			}
		}
	}
	return list
}

// sameFiles returns packages that have a file in the same place. dpkg and rpm find that while they install them, except for a file that one package
// has in /lib and the other in /usr/lib, for example: there dpkg replaces the first one without a word.
func (w *world) sameFiles() (list []Problem) {
	type found struct {
		first [2]string // of the files, by the names that the packages have
		n     int
	}
	type holder struct {
		of   *Package
		name string
	}
	holders := map[string][]holder{} // by the place
	for n, p := range w.added {
		with := map[*Package]found{}
		for _, name := range slices.Sorted(maps.Keys(p.files)) {
			at := place(name)
			for _, o := range holders[at] {
				if o.of != p && w.clash(p, o.of, name, o.name) {
					f := with[o.of]
					if f.n == 0 || f.first[0] != f.first[1] && name == o.name { // what dpkg refuses comes first
						f.first = [2]string{name, o.name}
					}
					f.n++
					with[o.of] = f
				}
			}
			holders[at] = append(holders[at], holder{p, name})
		}
		for _, o := range w.added[:n] {
			f := with[o]
			if f.n == 0 {
				continue
			}
			text, hint := fmt.Sprintf("%s and %s both have %s", p, o, f.first[0]), "the host's package manager would refuse the second one"
			if f.first[0] != f.first[1] {
				text = fmt.Sprintf("%s has %s, and %s has %s, which is the same file on hosts", p, f.first[0], o, f.first[1])
				if !w.rpm {
					hint = "dpkg would replace the file of the first one without an error"
				}
			}
			if f.n > 1 {
				text += fmt.Sprintf(" and %d more files", f.n-1)
			}
			list = append(list, Problem{Package: p, Message: text, Hint: "leave one of them out, or take versions that belong together: " + hint})
		}
	}
	return list
}

// clash reports whether two packages cannot both have a file, by the names that they give it.
func (w *world) clash(p, o *Package, name, other string) bool {
	a, b := p.files[name], o.files[other]
	if w.rpm {
		return a.same != ghost && b.same != ghost && (a.same == "" || a.same != b.same)
	}
	replaces := func(x, y *Package) bool {
		return name == other && slices.ContainsFunc(x.replaces, func(r relation) bool { return r.name == y.Name && holds(y.Version, r) })
	}
	shared := a.dir || b.dir || a.same != "" && a.same == b.same
	return !shared && !p.diverts && !o.diverts && !replaces(p, o) && !replaces(o, p)
}

// anyArch is a relation of a conflict, which without an architecture means every one.
func (w *world) anyArch(r relation, other *Package) relation {
	if r.arch == "" || r.arch == "any" {
		r.arch = ""
		if !w.native(other) {
			r.arch = other.Arch
		}
	}
	return r
}

// onHosts reports whether the hosts have a capability of rpm that stays.
func (w *world) onHosts(r relation) bool {
	return w.installed != nil && slices.ContainsFunc(w.installed.capabilities, func(has relation) bool {
		return has.name == r.name && w.stays(has) && overlap(has, r)
	})
}

// broken returns the installed packages that need the former version of a package.
func (w *world) broken() (list []Problem) {
	if w.rpm || w.installed == nil {
		return nil
	}
	replacedBy, kept := map[string]*Package{}, w.kept() // by what the hosts would not have any more
	for _, p := range w.installed.packages {
		if slices.Contains(kept, p) {
			continue
		}
		for _, a := range w.added {
			if a.Name == p.Name {
				replacedBy[p.Name] = a
				for _, virtual := range p.provides {
					replacedBy[virtual.name] = a
				}
			}
		}
	}
	before := world{arch: w.arch, installed: w.installed}
	for _, other := range kept {
		for _, c := range other.requires {
			n := slices.IndexFunc(c, func(r relation) bool { return replacedBy[r.name] != nil })
			if n < 0 || w.satisfied(c, other) || !before.satisfied(c, other) {
				continue
			}
			p := replacedBy[c[n].name]
			list = append(list, Problem{Package: p, Message: fmt.Sprintf("%s of the hosts needs %s, and they would have %s", other, c, p), Hint: "add the version of " + other.Name + " that belongs to it"})
		}
	}
	return list
}

// Stages returns the stage in which dpkg installs each package: packages of a lower stage are configured before the package is
// unpacked, because it pre-depends on one of them. What a package depends on is of the same stage or a lower one.
func Stages(set []*Package) map[*Package]int {
	stages := map[*Package]int{}
	w := world{rpm: len(set) > 0 && set[0].Format == RPM}
	in := func(c clause, of *Package) *Package { // the package of the set that satisfies a condition
		for _, o := range set {
			if o != of && slices.ContainsFunc(c, func(r relation) bool { return w.fits(o, relation{name: r.name, op: r.op, version: r.version}, o) }) {
				return o
			}
		}
		return nil
	}
	for changed := true; changed; {
		changed = false
		raise := func(list []clause, p *Package, by int) {
			for _, c := range list {
				if o := in(c, p); o != nil && stages[o]+by > stages[p] {
					stages[p], changed = stages[o]+by, true
				}
			}
		}
		for _, p := range set {
			raise(p.preRequires, p, 1)
			raise(p.requires, p, 0)
			if stages[p] > len(set) { // a circle, which dpkg refuses
				return map[*Package]int{}
			}
		}
	}
	return stages
}
