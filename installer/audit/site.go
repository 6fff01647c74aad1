package audit

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Site is the audit of several hosts. Its JSON is documented in docs/audit.md: fields are only added.
type Site struct {
	Benchmark string          `json:"benchmark"`
	Name      string          `json:"name"`
	Counts    map[Verdict]int `json:"counts"` // of checks, each by its worst verdict
	Hosts     []HostReport    `json:"hosts"`
}

// A HostReport is the audit of a host, or why there is none.
type HostReport struct {
	Name   string  `json:"name"`
	Error  string  `json:"error,omitempty"`
	Hint   string  `json:"hint,omitempty"`
	Report *Report `json:"report,omitempty"`
}

// NewSite returns the audit of hosts.
func NewSite(name string, hosts []HostReport) *Site {
	s := &Site{Benchmark: Benchmark, Name: name, Hosts: hosts, Counts: map[Verdict]int{}}
	for _, v := range Verdicts {
		s.Counts[v] = len(s.Of(v))
	}
	return s
}

// Passed reports whether no check failed, and every host was audited.
func (s *Site) Passed() bool {
	return !slices.ContainsFunc(s.Hosts, func(h HostReport) bool { return h.Report == nil || !h.Report.Passed() })
}

// A Group is a check with the hosts that have the same result.
type Group struct {
	Result
	Hosts []string
}

// severity orders verdicts for a check that has several: one that is not applicable to a host is judged by the others.
var severity = map[Verdict]int{Failed: 5, Judge: 4, ByDesign: 3, Passed: 2, NotApplicable: 1}

// Of returns the checks whose worst verdict is v, in order of their numbers, with the results that have this verdict.
func (s *Site) Of(v Verdict) (checks [][]Group) {
	byID := map[string][]Group{}
	worst := map[string]Verdict{}
	for _, h := range s.Hosts {
		if h.Report == nil {
			continue
		}
		for _, one := range h.Report.Results {
			if severity[one.Verdict] > severity[worst[one.ID]] {
				worst[one.ID] = one.Verdict
			}
			if one.Verdict != v {
				continue
			}
			i := slices.IndexFunc(byID[one.ID], func(g Group) bool {
				return g.Found == one.Found && g.Reason == one.Reason && g.Fix == one.Fix
			})
			if i < 0 {
				byID[one.ID] = append(byID[one.ID], Group{one, []string{h.Name}})
			} else {
				byID[one.ID][i].Hosts = append(byID[one.ID][i].Hosts, h.Name)
			}
		}
	}
	for id, groups := range byID {
		if worst[id] == v {
			checks = append(checks, groups)
		}
	}
	slices.SortFunc(checks, func(a, b []Group) int { return Compare(a[0].ID, b[0].ID) })
	return checks
}

// Summary is the number of checks by verdict, in one line.
func (s *Site) Summary() string { return summary(s.Counts) }

func summary(counts map[Verdict]int) string {
	total := 0
	var parts []string
	for _, v := range Verdicts {
		total += counts[v]
		parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
	}
	return fmt.Sprintf("%d checks: %s", total, strings.Join(parts, ", "))
}

var titles = map[Verdict]string{Failed: "FAILED", Judge: "TO BE JUDGED BY A PERSON", ByDesign: "BY DESIGN", NotApplicable: "NOT APPLICABLE", Passed: "PASSED"}

// Write prints the audit: what failed first, with the command that fixes it.
func (s *Site) Write(out io.Writer) {
	fmt.Fprintf(out, "%s, %s\n", s.Name, s.Benchmark)
	for _, h := range s.Hosts {
		switch {
		case h.Report == nil:
			fmt.Fprintf(out, "%s: not audited: %s\n", h.Name, h.Error)
			if h.Hint != "" {
				fmt.Fprintf(out, "  hint: %s\n", h.Hint)
			}
		default:
			fmt.Fprintf(out, "%s: %s, Kubernetes %s\n", h.Name, h.Report.Role, h.Report.Kubernetes)
		}
	}
	fmt.Fprintln(out, s.Summary())
	for _, v := range Verdicts {
		checks := s.Of(v)
		if len(checks) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s (%d)\n", titles[v], len(checks))
		if v == Passed {
			writeIDs(out, checks)
			continue
		}
		for _, groups := range checks {
			s.writeCheck(out, groups)
		}
	}
	for _, h := range s.Hosts {
		if h.Report == nil {
			continue
		}
		for _, text := range h.Report.Unread {
			fmt.Fprintf(out, "\n%s: not read: %s\n", h.Name, text)
		}
		if h.Report.Left != "" && len(s.Hosts) == 1 {
			fmt.Fprintf(out, "\n%s\n", h.Report.Left)
		}
	}
}

func (s *Site) writeCheck(out io.Writer, groups []Group) {
	first := groups[0]
	kind := ""
	if first.Automated {
		kind = " (automated)"
	}
	fmt.Fprintf(out, "  %-7s %s%s\n", first.ID, first.Title, kind)
	for _, g := range groups {
		line := func(name, text string) {
			if text != "" {
				fmt.Fprintf(out, "          %s: %s\n", name, text)
			}
		}
		if len(s.Hosts) > 1 {
			line("on", strings.Join(g.Hosts, ", "))
		}
		line("found", g.Found)
		if g.Verdict == Failed || g.Verdict == ByDesign {
			line("wanted", g.Want)
		}
		line("reason", g.Reason)
		line("fix", g.Fix)
	}
}

// writeIDs prints the numbers of checks in lines.
func writeIDs(out io.Writer, checks [][]Group) {
	line := " "
	for _, groups := range checks {
		if len(line) > 80 {
			fmt.Fprintln(out, line)
			line = " "
		}
		line += " " + groups[0].ID
	}
	fmt.Fprintln(out, line)
}
