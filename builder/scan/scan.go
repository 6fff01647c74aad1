package scan

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"airlift/builder/sbom"
	"airlift/internal/fault"
)

// A Report is what the databases know about a bundle.
type Report struct {
	File            string          `json:"file"`
	Bundle          string          `json:"bundle"` // what is in the file
	EntriesSHA256   string          `json:"entriesSHA256"`
	Databases       []*Source       `json:"databases"`
	Packages        []Count         `json:"packages"`
	Vulnerabilities []Vulnerability `json:"vulnerabilities"` // the worst first
	// NotJudged lists packages that the databases may know, but not in this version.
	NotJudged []string `json:"notJudged"`
	// Warnings are about the databases, the list of the software and VEX.
	Warnings []string `json:"warnings"`
	Changes  *Changes `json:"changes,omitempty"`
}

// A Count is how many different packages of a group were compared.
type Count struct {
	Group string `json:"group"`
	N     int    `json:"packages"`
}

// A Vulnerability is one defect, whatever databases call it.
type Vulnerability struct {
	ID       string    `json:"id"`
	Aliases  []string  `json:"aliases"`
	Summary  string    `json:"summary,omitempty"`
	Severity Severity  `json:"severity"`
	Findings []Finding `json:"findings"`
}

// A Finding is a vulnerable package at one place.
type Finding struct {
	Package     string     `json:"package"`
	Source      string     `json:"source,omitempty"` // the package's source, if it has another name
	Version     string     `json:"version"`
	VersionFrom string     `json:"versionFrom,omitempty"` // if the package does not have it
	PURL        string     `json:"purl"`
	FixedIn     []string   `json:"fixedIn"`
	Place       string     `json:"place"`          // image, component or file
	Path        string     `json:"path,omitempty"` // of the binary at that place
	Records     []string   `json:"records"`
	Doubt       string     `json:"doubt,omitempty"` // why the package may not be affected
	Status      string     `json:"status"`
	Statement   *Statement `json:"statement,omitempty"`

	stable string // place and package without versions
}

// Changes is what a file has that an older one had not, and the other way round.
type Changes struct {
	Base    string          `json:"base"`
	Fixed   []Vulnerability `json:"fixed"`
	Brought []Vulnerability `json:"brought"`
}

// Open reports whether the vulnerability needs work at any place.
func (v Vulnerability) Open() bool {
	return slices.ContainsFunc(v.Findings, func(f Finding) bool { return !closes(f.Status) })
}

// Worst returns the open vulnerabilities that are at least as severe as least.
func (r *Report) Worst(least Level) (list []Vulnerability) {
	for _, v := range r.Vulnerabilities {
		if v.Open() && v.Severity.Level.atLeast(least) {
			list = append(list, v)
		}
	}
	return list
}

// A File is the software in a bundle file.
type File struct {
	Path     string
	Contents *sbom.Contents
}

// Options are what a bundle is compared with.
type Options struct {
	Databases []string // paths
	VEX       []string // paths
	Base      *File    // an older bundle, or nil
	Now       time.Time
}

// staleAfter is the age of the newest record from which a database is called old. OSV changes some of each ecosystem every day.
const staleAfter = 14 * 24 * time.Hour

// Scan compares a bundle with databases.
func Scan(ctx context.Context, file File, o Options) (*Report, error) {
	statements, err := readVEX(o.VEX)
	if err != nil {
		return nil, err
	}
	packages, err := list(file)
	if err != nil {
		return nil, err
	}
	var older *packageList
	all := []*packageList{packages}
	if o.Base != nil {
		if older, err = list(*o.Base); err != nil {
			return nil, err
		}
		all = append(all, older)
	}
	wanted := map[packageKey]bool{}
	for _, l := range all {
		for _, p := range l.packages {
			for _, key := range p.keys() {
				wanted[key] = true
			}
		}
	}
	d, err := load(ctx, o.Databases, wanted)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if err := l.missing(d); err != nil {
			return nil, err
		}
	}
	names := d.names()
	r := &Report{File: file.Path, Bundle: strings.TrimSpace(file.Contents.Root.Name + " " + file.Contents.Root.Version), EntriesSHA256: property(file.Contents.Root, "entriesSHA256"),
		Databases: d.about(), Packages: packages.counts(), Warnings: d.stale(o.Now)}
	if r.Vulnerabilities, r.NotJudged, err = d.judge(ctx, packages, names, statements); err != nil {
		return nil, err
	}
	for _, w := range file.Contents.Warnings {
		r.Warnings = append(r.Warnings, "the list of the software is not complete: "+w)
	}
	if older != nil {
		was, _, err := d.judge(ctx, older, names, statements)
		if err != nil {
			return nil, err
		}
		r.Changes = &Changes{Base: o.Base.Path, Fixed: without(was, r.Vulnerabilities), Brought: without(r.Vulnerabilities, was)}
	}
	for _, s := range statements {
		if !s.used {
			r.Warnings = append(r.Warnings, fmt.Sprintf("the VEX statement about %s in %q is about nothing in the bundle", s.ids[0], s.Document))
		}
	}
	return r, nil
}

// A located is a package with everything that contains it, from the bundle down.
type located struct {
	subject
	chain []*sbom.Item
}

func (l *located) keys() (keys []packageKey) {
	for _, e := range l.ecosystems {
		keys = append(keys, packageKey{e, l.name})
	}
	if l.group == goEcosystem && strings.HasPrefix(l.name, "k8s.io/") {
		keys = append(keys, packageKey{kubernetesEcosystem, l.name})
	}
	return keys
}

type packageList struct {
	packages []located
	platform string // "linux/amd64"; "" if it is not known
}

// maxPackages bounds the memory for a hostile bundle.
const maxPackages = 2_000_000

// list returns every package at each of its places.
func list(f File) (*packageList, error) {
	byID := map[string]*sbom.Item{}
	for _, i := range f.Contents.Items {
		byID[i.ID] = i
	}
	l := &packageList{platform: property(f.Contents.Root, "platform")}
	var walk func(chain []*sbom.Item) error
	walk = func(chain []*sbom.Item) error {
		if len(l.packages) > maxPackages || len(chain) > 16 {
			return fmt.Errorf("%q has more than %d packages in all their places", f.Path, maxPackages)
		}
		if s, ok := subjectOf(chain); ok {
			l.packages = append(l.packages, located{s, slices.Clone(chain)})
			return nil
		}
		item := chain[len(chain)-1]
		for _, id := range slices.Concat(item.Contains, item.DependsOn) {
			if next := byID[id]; next != nil && next.Kind != sbom.Layer {
				if err := walk(append(chain, next)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return l, walk([]*sbom.Item{f.Contents.Root})
}

// missing refuses databases without an ecosystem of the bundle: they would find nothing.
func (l *packageList) missing(d *database) error {
	var groups, files []string
	for _, p := range l.packages {
		if len(p.ecosystems) > 0 && !slices.ContainsFunc(p.ecosystems, func(e string) bool { return d.ecosystems[e] }) && !slices.Contains(groups, p.group) {
			groups = append(groups, p.group)
			if file := family(p.ecosystems[0]) + "/all.zip"; !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	if groups == nil {
		return nil
	}
	slices.Sort(groups)
	slices.Sort(files)
	return fault.New(fault.Failure, "the databases have no record for %s, which the bundle has packages of", strings.Join(groups, ", ")).
		Hint("carry in " + strings.Join(files, ", ") + " from https://storage.googleapis.com/osv-vulnerabilities/, and add --db; see 'bundle docs scan'")
}

func (l *packageList) counts() []Count {
	counts := []Count{}
	groups := map[string]map[string]bool{}
	for _, p := range l.packages {
		if groups[p.group] == nil {
			groups[p.group] = map[string]bool{}
		}
		groups[p.group][p.name+" "+p.version] = true
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		counts = append(counts, Count{group, len(groups[group])})
	}
	return counts
}

// about returns what the databases have, by ecosystem.
func (d *database) about() (list []*Source) {
	for _, name := range slices.Sorted(maps.Keys(d.sources)) {
		list = append(list, d.sources[name])
	}
	return list
}

// stale returns warnings about old databases that are used.
func (d *database) stale(now time.Time) []string {
	warnings := []string{}
	used := map[string]bool{}
	for key := range d.wanted {
		used[family(key.ecosystem)] = true
	}
	for _, s := range d.about() {
		day := s.Newest.UTC().Format(time.DateOnly)
		switch age := now.Sub(s.Newest); {
		case !used[s.Ecosystem]:
		case s.Records == 0:
			warnings = append(warnings, fmt.Sprintf("THE DATABASE OF %s IS EMPTY: all its records are withdrawn", s.Ecosystem))
		case age > staleAfter:
			warnings = append(warnings, fmt.Sprintf("THE DATABASE OF %s IS %d DAYS OLD: its newest record is of %s, and nothing newer can be found", s.Ecosystem, int(age.Hours()/24), day))
		case age < -24*time.Hour:
			warnings = append(warnings, fmt.Sprintf("the newest record of %s is of %s, which is in the future: the clock of this machine is wrong, so the age of the database is not known", s.Ecosystem, day))
		}
	}
	return warnings
}

// A naming knows which IDs are names of one vulnerability.
type naming map[string]string // a union-find structure

func (n naming) find(id string) string {
	for n[id] != "" {
		if up := n[n[id]]; up != "" {
			n[id] = up
		}
		id = n[id]
	}
	return id
}

var distributionCVE = regexp.MustCompile(`^[A-Z]+-(CVE-\d{4}-\d{4,})$`)

// idOf returns the CVE of "DEBIAN-CVE-2024-1234", and else the ID.
func idOf(id string) string { return distributionCVE.ReplaceAllString(id, "$1") }

// ids returns the vulnerabilities of a record. A security advisory of a distribution is about several.
func (r *record) ids() []string {
	if len(r.Aliases) > 0 || len(r.Upstream) == 0 || idOf(r.ID) != r.ID {
		return []string{idOf(r.ID)}
	}
	var ids []string
	for _, id := range r.Upstream {
		if id = idOf(id); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (d *database) names() naming {
	n := naming{}
	for _, id := range slices.Sorted(maps.Keys(d.kept)) {
		r := d.kept[id]
		for _, alias := range r.Aliases {
			a, b := n.find(idOf(r.ID)), n.find(idOf(alias))
			if a == b {
				continue
			}
			if better(b, a) {
				a, b = b, a
			}
			n[b] = a
		}
	}
	return n
}

// better reports whether a is the name that people know better.
func better(a, b string) bool {
	if x, y := strings.HasPrefix(a, "CVE-"), strings.HasPrefix(b, "CVE-"); x != y {
		return x
	}
	return a < b
}

// judge returns the vulnerabilities of packages, and the packages of which the version is not known.
func (d *database) judge(ctx context.Context, l *packageList, names naming, statements []*Statement) ([]Vulnerability, []string, error) {
	about := map[packageKey][]*record{}
	for _, id := range slices.Sorted(maps.Keys(d.kept)) {
		r := d.kept[id]
		for _, a := range r.Affected {
			key := packageKey{a.Package.Ecosystem, a.Package.Name}
			if list := about[key]; d.wanted[key] && (len(list) == 0 || list[len(list)-1] != r) {
				about[key] = append(list, r)
			}
		}
	}
	b := builder{names: names, statements: statements, platform: l.platform, byID: map[string]*Vulnerability{}, index: map[string]int{}}
	without := map[string]int{}
	for _, p := range l.packages {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if len(p.ecosystems) == 0 {
			without[fmt.Sprintf("%s: OSV has no database of it", cmp.Or(p.group, "an unknown distribution"))]++
			continue
		}
		known := func(key packageKey) bool { return len(about[key]) > 0 }
		if p.version == "" && slices.ContainsFunc(p.keys(), known) {
			place, path := placeOf(p.chain)
			without[fmt.Sprintf("%s in %s: the binary does not have its version", p.name, strings.TrimSpace(place+" "+path))]++
			continue
		}
		for _, key := range p.keys() {
			for _, r := range about[key] {
				b.record(&p, r, key)
			}
		}
	}
	notJudged := []string{}
	for _, text := range slices.Sorted(maps.Keys(without)) {
		if n := without[text]; n > 1 {
			text = fmt.Sprintf("%s (%d packages)", text, n)
		}
		notJudged = append(notJudged, text)
	}
	return b.finish(d), notJudged, nil
}

// A builder collects findings by vulnerability.
type builder struct {
	names      naming
	statements []*Statement
	platform   string // of the bundle
	byID       map[string]*Vulnerability
	index      map[string]int // of a finding in its vulnerability, by vulnerability, place and package
}

// record adds what a record states about a package.
func (b *builder) record(p *located, r *record, key packageKey) {
	var v verdict
	var found []rating
	urgency := ""
	for _, a := range r.Affected {
		if (packageKey{a.Package.Ecosystem, a.Package.Name}) != key {
			continue
		}
		if a.Ecosystem.elsewhere(b.platform) {
			continue
		}
		one := a.judge(p.version, p.from != "")
		if one.affected {
			v.affected, v.doubt = true, cmp.Or(v.doubt, one.doubt)
			v.fixed = append(v.fixed, one.fixed...)
			found, urgency = append(found, a.Severity...), a.Ecosystem.Urgency
		}
	}
	if !v.affected {
		return
	}
	severity := worst(found)
	for _, id := range r.ids() {
		b.finding(b.names.find(id), p, r, v, severity, urgency == Unimportant)
	}
}

func (b *builder) finding(id string, p *located, r *record, v verdict, severity Severity, unimportant bool) {
	vulnerability := b.byID[id]
	if vulnerability == nil {
		vulnerability = &Vulnerability{ID: id, Severity: severity, Aliases: []string{}}
		b.byID[id] = vulnerability
	}
	if severity.compareTo(vulnerability.Severity) < 0 {
		vulnerability.Severity = severity
	}
	place, path := placeOf(p.chain)
	item := p.chain[len(p.chain)-1]
	key := strings.Join([]string{id, place, path, item.ID}, "\x00")
	n, ok := b.index[key]
	if !ok {
		n = len(vulnerability.Findings)
		b.index[key] = n
		one := Finding{Package: item.Name, Version: cmp.Or(p.version, item.Version), VersionFrom: p.from, PURL: item.PURL, FixedIn: []string{}, Place: place, Path: path, Status: Open,
			stable: strings.Join([]string{id, withoutVersion(p.chain), path, item.Name}, "\x00")}
		if p.name != item.Name {
			one.Source = p.name
		}
		if unimportant {
			one.Status = Unimportant
		}
		vulnerability.Findings = append(vulnerability.Findings, one)
	}
	f := &vulnerability.Findings[n]
	f.FixedIn = append(f.FixedIn, v.fixed...)
	f.Records = append(f.Records, r.ID)
	f.Doubt = cmp.Or(f.Doubt, v.doubt)
	if !unimportant && f.Status == Unimportant {
		f.Status = Open // another record has not this opinion
	}
	for _, s := range b.statements {
		names := func(name string) bool { return b.names.find(idOf(name)) == id || idOf(name) == r.ID }
		if slices.ContainsFunc(s.ids, names) && s.about(p.chain) {
			f.Status, f.Statement, s.used = s.Status, s, true
		}
	}
}

// finish returns the vulnerabilities, the worst first. Records about the same vulnerability that do not know the package's version
// have names and a severity, too.
func (b *builder) finish(d *database) []Vulnerability {
	for _, id := range slices.Sorted(maps.Keys(d.kept)) {
		r := d.kept[id]
		severity := worst(r.Severity)
		if severity.Level == Unknown {
			severity = worded(word(r.Database, "severity"))
		}
		for _, id := range r.ids() {
			v := b.byID[b.names.find(id)]
			if v == nil {
				continue
			}
			v.Summary = cmp.Or(v.Summary, r.Summary)
			v.Aliases = append(v.Aliases, r.ID)
			for _, alias := range r.Aliases {
				v.Aliases = append(v.Aliases, idOf(alias))
			}
			if severity.compareTo(v.Severity) < 0 {
				v.Severity = severity
			}
		}
	}
	list := []Vulnerability{}
	for _, v := range b.byID {
		slices.Sort(v.Aliases)
		v.Aliases = slices.DeleteFunc(slices.Compact(v.Aliases), func(id string) bool { return id == v.ID })
		slices.SortFunc(v.Findings, func(a, b Finding) int {
			return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Place, b.Place), cmp.Compare(a.Path, b.Path))
		})
		for n := range v.Findings {
			f := &v.Findings[n]
			for _, texts := range []*[]string{&f.FixedIn, &f.Records} {
				slices.Sort(*texts)
				*texts = slices.Compact(*texts)
			}
		}
		list = append(list, *v)
	}
	slices.SortFunc(list, func(a, b Vulnerability) int {
		return cmp.Or(a.Severity.compareTo(b.Severity), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// placeOf returns where a package is: the image, component or file, and the path of the binary in it.
func placeOf(chain []*sbom.Item) (place, path string) {
	if len(chain) > 1 {
		place = chain[1].Name
		if chain[1].Kind == sbom.Component {
			place += " " + chain[1].Version
		}
	}
	for _, i := range chain[min(2, len(chain)):] {
		if i.Kind == sbom.Binary && (i.Name != chain[1].Name) {
			path = i.Name
		}
	}
	return place, path
}

// withoutVersion is the same place in bundles of other versions.
func withoutVersion(chain []*sbom.Item) string {
	if len(chain) < 2 {
		return ""
	}
	name := chain[1].Name
	if chain[1].Kind == sbom.Image {
		name, _, _ = strings.Cut(name, "@")
		if n := strings.LastIndexByte(name, ':'); n > strings.LastIndexByte(name, '/') {
			name = name[:n]
		}
	}
	return string(chain[1].Kind) + " " + name
}

// without returns the open findings of a list that other does not have, whatever their versions.
func without(list, other []Vulnerability) []Vulnerability {
	has := map[string]bool{}
	for _, v := range other {
		for _, f := range v.Findings {
			if !closes(f.Status) {
				has[f.stable] = true
			}
		}
	}
	rest := []Vulnerability{}
	for _, v := range list {
		v.Findings = slices.DeleteFunc(slices.Clone(v.Findings), func(f Finding) bool { return closes(f.Status) || has[f.stable] })
		if len(v.Findings) > 0 {
			rest = append(rest, v)
		}
	}
	return rest
}
