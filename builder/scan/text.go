package scan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"airlift/internal/fault"
)

// Summary is the report in one line.
func (r *Report) Summary() string {
	open := r.Worst(None)
	text := countOf(len(open), "vulnerability", "vulnerabilities")
	var levels []string
	for _, l := range order {
		n := 0
		for _, v := range open {
			if v.Severity.Level == l {
				n++
			}
		}
		if n > 0 {
			levels = append(levels, fmt.Sprintf("%d %s", n, l))
		}
	}
	if levels != nil {
		text += ": " + strings.Join(levels, ", ")
	}
	if n := len(r.Vulnerabilities) - len(open); n > 0 {
		text += fmt.Sprintf("; %d without effect", n)
	}
	if n := len(r.NotJudged); n > 0 {
		text += fmt.Sprintf("; %d not judged", n)
	}
	return text
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// header returns lines about what was compared.
func (r *Report) header() (lines [][2]string) {
	var packages, databases []string
	for _, c := range r.Packages {
		packages = append(packages, fmt.Sprintf("%s %d", cmp.Or(c.Group, "unknown distribution"), c.N))
	}
	for _, s := range r.Databases {
		databases = append(databases, fmt.Sprintf("%s: %d records, the newest of %s", s.Ecosystem, s.Records, s.Newest.UTC().Format(time.DateOnly)))
	}
	return [][2]string{{"file", r.File}, {"bundle", r.Bundle}, {"packages", cmp.Or(strings.Join(packages, ", "), "none")}, {"databases", strings.Join(databases, "; ")}}
}

// label is the severity for people: "high 7.5".
func (s Severity) label() string {
	if s.Vector == "" {
		return string(s.Level)
	}
	return fmt.Sprintf("%s %.1f", s.Level, s.Score)
}

// title is the first line about a vulnerability.
func (v Vulnerability) title() string {
	text := v.ID
	if len(v.Aliases) > 0 {
		text += " (" + strings.Join(v.Aliases, ", ") + ")"
	}
	return text
}

// A part is findings about one package with one status.
type part struct{ what, state, where string }

// parts groups findings by package, version, fix and status; places are listed once.
func (v Vulnerability) parts(paths bool) (list []part) {
	for _, f := range v.Findings {
		what := f.Package + " " + f.Version
		if f.Source != "" {
			what = f.Package + " (source " + f.Source + ") " + f.Version
		}
		if f.VersionFrom != "" {
			what += ", by " + f.VersionFrom
		}
		if what += ", no fix is known"; len(f.FixedIn) > 0 {
			what = strings.TrimSuffix(what, ", no fix is known") + ", fixed in " + strings.Join(f.FixedIn, ", ")
		}
		if f.Doubt != "" {
			what += " (" + f.Doubt + ")"
		}
		state := ""
		switch {
		case f.Statement != nil:
			state = f.Status + ": " + f.Statement.text()
		case f.Status == Unimportant:
			state = "unimportant: Debian sees no effect on security"
		}
		where := f.Place
		if paths && f.Path != "" {
			where += " " + f.Path
		}
		n := slices.IndexFunc(list, func(p part) bool { return p.what == what && p.state == state })
		if n < 0 {
			list = append(list, part{what, state, where})
		} else if !slices.Contains(strings.Split(list[n].where, "; "), where) {
			list[n].where += "; " + where
		}
	}
	return list
}

// WriteText prints the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		text := strings.ReplaceAll(fault.Printable(fmt.Sprintf(format, args...)), "\n", " ") // a summary makes no lines
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	for _, h := range r.header() {
		line("%-10s %s", h[0], h[1])
	}
	list := func(title string, vulnerabilities []Vulnerability) {
		if len(vulnerabilities) == 0 {
			return
		}
		line("")
		line("%s", title)
		for _, v := range vulnerabilities {
			line("  %-13s %s", v.Severity.label(), v.title())
			if v.Summary != "" {
				line("  %13s %s", "", v.Summary)
			}
			for _, p := range v.parts(false) {
				line("  %13s %s", "", p.what)
				if p.state != "" {
					line("  %15s %s", "", p.state)
				}
				line("  %15s in %s", "", p.where)
			}
		}
	}
	var open, closed []Vulnerability
	for _, v := range r.Vulnerabilities {
		if v.Open() {
			open = append(open, v)
		} else {
			closed = append(closed, v)
		}
	}
	list("Vulnerable:", open)
	list("Without effect:", closed)
	if c := r.Changes; c != nil {
		list("Fixed since "+c.Base+":", c.Fixed)
		list("New since "+c.Base+":", c.Brought)
		if len(c.Fixed)+len(c.Brought) == 0 {
			line("")
			line("The vulnerabilities of %s are the same.", c.Base)
		}
	}
	if len(r.NotJudged) > 0 {
		line("")
		line("Not judged:")
	}
	for _, text := range r.NotJudged {
		line("  %s", text)
	}
	line("")
	line("%s", r.Summary())
	if c := r.Changes; c != nil {
		line("compared with %s: %d fixed, %d new", c.Base, len(c.Fixed), len(c.Brought))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
