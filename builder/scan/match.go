package scan

import (
	"fmt"
	"slices"
	"strings"
)

// A verdict is what a record states about one version of a package.
type verdict struct {
	affected bool
	fixed    []string // the versions that fix it
	// doubt is why it cannot be known whether the version is affected, which counts as affected.
	doubt string
}

// judge compares a version with an entry of a record: https://ossf.github.io/osv-schema/#evaluation. released is set if the version is the one of a
// release, because the module has none.
func (a *affected) judge(version string, released bool) (v verdict) {
	if a.everyVersion() && len(a.Ecosystem.Custom) > 0 { // the range of the module covers what its versions cannot express
		if released {
			of := affected{Package: a.Package, Ranges: a.Ecosystem.Custom}
			return of.judge(version, released)
		}
		return verdict{affected: true, doubt: "the record has versions of releases, and the binary has the version of a commit"}
	}
	ecosystem := a.Package.Ecosystem
	v.affected = slices.ContainsFunc(a.Versions, func(listed string) bool {
		return listed == version || family(ecosystem) == goEcosystem && strings.TrimPrefix(listed, "v") == version
	})
	usable := len(a.Versions) > 0
	for _, r := range a.Ranges {
		if r.Type == "GIT" {
			continue
		}
		usable = true
		in, fixed, err := r.judge(ecosystem, version)
		if err != nil {
			v.affected, v.doubt = true, fmt.Sprintf("versions cannot be compared: %v", err)
			continue
		}
		v.affected = v.affected || in
		v.fixed = append(v.fixed, fixed...)
	}
	if !usable {
		v.affected, v.doubt = true, "the record names no versions"
	}
	slices.Sort(v.fixed)
	v.fixed = slices.Compact(v.fixed)
	return v
}

// everyVersion reports whether each version is affected.
func (a *affected) everyVersion() bool {
	return len(a.Versions) == 0 && len(a.Ranges) == 1 && slices.Equal(a.Ranges[0].Events, []event{{Introduced: "0"}})
}

// judge reports whether a version is in the range. Then the last event before the version introduced the defect.
// fixed is the first later version that fixes it.
func (r *affectedRange) judge(ecosystem, version string) (in bool, fixed []string, err error) {
	last, next, limits, below := "", "", false, false
	for _, e := range r.Events {
		at, kind := e.at()
		if kind == "" {
			continue
		}
		order := 1 // "0" is before all versions, and limit "*" after them
		switch {
		case kind == "limit" && at == "*":
			order = -1
		case kind == "introduced" && at == "0":
		default:
			if order, err = compare(ecosystem, version, at); err != nil {
				return false, nil, err
			}
		}
		switch kind {
		case "limit":
			limits, below = true, below || order < 0
			continue
		case "fixed":
			if order < 0 {
				earlier := next == ""
				if !earlier {
					c, err := compare(ecosystem, at, next)
					if err != nil {
						return false, nil, err
					}
					earlier = c < 0
				}
				if earlier {
					next = at
				}
			}
		}
		if order < 0 || order == 0 && kind == "last_affected" {
			continue
		}
		later := last == "" || last == "0"
		if !later && at != "0" {
			c, err := compare(ecosystem, at, last)
			if err != nil {
				return false, nil, err
			}
			later = c >= 0
		}
		if later {
			last, in = at, kind == "introduced"
		}
	}
	in = in && (!limits || below)
	if in && next != "" {
		fixed = []string{next}
	}
	return in, fixed, nil
}
