package status

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"airlift/installer/node"
	"airlift/internal/progress"
)

// bytes is a size for people.
func bytes(n int64) string { return progress.Bytes(n) }

// days is a time for people: "364d", "2y11d".
func days(d time.Duration) string { return duration.HumanDuration(d) }

// shownCertificates is how many of the certificates that expire next are shown.
const shownCertificates = 2

// Write prints the status for people. Lines are wrapped at width, or not at all if it is 0.
func (s *Status) Write(out io.Writer, width int) {
	p := &printer{out: out, width: width}
	s.writeNode(p)
	s.writeComponents(p)
	p.row("versions", s.versions())
	if s.Node.Role != node.NoNode {
		p.row("certificates", s.certificates())
		p.row("etcd", s.etcd())
		if s.Endpoint != nil {
			p.row("endpoint", s.endpoint())
		}
		p.row("images", s.images())
		p.row("add-ons", s.addOns())
		if len(s.Packages) > 0 || s.Unknown["packages"] != "" {
			p.row("packages", s.packages())
		}
		p.row("drift", s.drift())
	}
	p.row("last backup", s.backup())
	p.row("last run", s.run())
	if s.Node.Role != node.NoNode {
		s.writeManifests(p)
		s.writeDrift(p)
	}
	p.list("Wrong", s.Problems)
	p.list("Warnings", s.Warnings)
	if s.Healthy {
		fmt.Fprintln(out, "\nNothing is wrong.")
	}
}

// A printer writes lines of at most width characters.
type printer struct {
	out   io.Writer
	width int
}

const labelWidth = 14

func (p *printer) row(label, text string) {
	p.wrap(fmt.Sprintf("%-*s", labelWidth, label), strings.Repeat(" ", labelWidth), text)
}

// wrap writes a text after first; its further lines begin with next.
func (p *printer) wrap(first, next, text string) {
	line := first
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && p.width > 0 && len([]rune(line))+1+len([]rune(word)) > p.width {
			fmt.Fprintln(p.out, strings.TrimRight(line, " "))
			line, empty = next, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	fmt.Fprintln(p.out, strings.TrimRight(line, " "))
}

func (p *printer) list(title string, list []Problem) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(p.out, "\n%s:\n", title)
	for _, one := range list {
		p.wrap("  - ", "    ", one.Message)
		if one.Fix != "" {
			p.wrap("    fix: ", "         ", one.Fix)
		}
	}
}

func (s *Status) writeNode(p *printer) {
	n := s.Node
	if n.Role == node.NoNode {
		p.wrap("", "  ", "host "+n.Name+": not a node of a cluster")
	} else {
		state := "Ready"
		switch {
		case strings.HasPrefix(n.Reason, "unknown: "):
			state = "Ready is " + n.Reason
		case !n.Ready:
			state = "not Ready: " + n.Reason
		}
		p.wrap("", "  ", fmt.Sprintf("node %s: %s, %s%s", n.Name, n.Role, comma(cmp.Or(n.Version, s.Versions.Host.Kubelet)), state))
	}
	p.row("addresses", cmp.Or(strings.Join(n.Addresses, ", "), "none"))
	if a := n.Adopted; a != nil {
		p.row("adopted", fmt.Sprintf("made by %s, %s, adopted %s", a.Maker, a.Kubernetes, a.Time.UTC().Format(time.DateTime+" UTC")))
		for _, note := range a.Notes {
			p.row("", "- "+note)
		}
	}
	p.row("system", fmt.Sprintf("%skernel %s, %s, up %s", comma(n.OS), n.Kernel, n.Architecture, days(time.Duration(n.UptimeSeconds)*time.Second)))
}

// comma returns a text with a comma after it, or nothing.
func comma(text string) string {
	if text == "" {
		return ""
	}
	return text + ", "
}

func (s *Status) writeComponents(p *printer) {
	if len(s.Components) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	table := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tVERSION\tSTATE\tFOR\tRESTARTS\tHEALTHY")
	for _, c := range s.Components {
		since := "-"
		if c.Since != nil {
			since = days(s.now.Sub(*c.Since))
		}
		healthy := "yes"
		if !c.Healthy {
			healthy = "no"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", c.Name, cmp.Or(c.Version, "-"), c.State, since, c.Restarts, healthy)
	}
	_ = table.Flush() // a lost output cancels the command
	fmt.Fprintln(p.out)
}

// unknown returns why a part is not known, or the default.
func (s *Status) unknown(part, otherwise string) string {
	if why, ok := s.Unknown[part]; ok {
		return "unknown: " + why
	}
	return otherwise
}

func (s *Status) versions() string {
	v := s.Versions
	text := "this file " + cmp.Or(v.File.Kubernetes, "has no Kubernetes") + ", this host " + cmp.Or(v.Host.Kubelet, "has no kubelet")
	switch {
	case v.API != "":
		text += ", API server " + v.API
	case s.Node.Role != node.NoNode:
		text += ", API server unknown"
	}
	if len(v.Cluster) > 1 {
		nodes := map[string]int{}
		for _, n := range v.Cluster {
			nodes[n.Kubelet]++
		}
		text += fmt.Sprintf(", %d nodes", len(v.Cluster))
		if len(nodes) > 1 {
			text += fmt.Sprintf(" with %d different versions", len(nodes))
		}
	}
	return text
}

func (s *Status) packages() string {
	var list []string
	for _, one := range s.Packages {
		text := one.Name + " " + cmp.Or(one.Installed, one.Version)
		if one.State != "installed" {
			text += " (" + one.State + ")"
		}
		list = append(list, text)
	}
	return s.unknown("packages", strings.Join(list, ", "))
}

func (s *Status) certificates() string {
	if _, failed := s.Unknown["certificates"]; failed || len(s.Certificates) == 0 {
		return s.unknown("certificates", "none")
	}
	var next []string
	present := 0
	for _, c := range s.Certificates {
		if c.Missing {
			continue
		}
		present++
		left := time.Duration(c.Seconds) * time.Second
		switch {
		case len(next) == shownCertificates:
		case left <= 0:
			next = append(next, c.Name+" has expired")
		default:
			next = append(next, c.Name+" expires in "+days(left))
		}
	}
	text := strings.Join(next, ", ")
	if more := present - len(next); more > 0 {
		text += fmt.Sprintf(", %d more later", more)
	}
	return text
}

func (s *Status) etcd() string {
	if s.Etcd == nil {
		return s.unknown("etcd", "none")
	}
	healthy := 0
	var sizes []string
	for _, m := range s.Etcd.Members {
		if m.Healthy {
			healthy++
			sizes = append(sizes, bytes(m.Bytes))
		}
	}
	text := fmt.Sprintf("%d of %d members healthy", healthy, len(s.Etcd.Members))
	if len(sizes) > 0 {
		text += ", database " + strings.Join(sizes, ", ")
	}
	return text
}

func (s *Status) images() string {
	if s.Images == nil {
		return s.unknown("images", "none")
	}
	text := fmt.Sprintf("%d imported by Airlift, %s", s.Images.Imported, bytes(s.Images.Bytes))
	if n := s.Images.Other; n > 0 {
		text += fmt.Sprintf(", %d others", n)
	}
	if n := len(s.Images.Missing); n > 0 {
		return text + fmt.Sprintf(", %d of this file missing", n)
	}
	return text + ", none of this file missing"
}

func (s *Status) addOns() string {
	var list []string
	for _, a := range s.AddOns {
		list = append(list, fmt.Sprintf("%s %s%d/%d", a.Name, a.Version+" ", a.Ready, a.Wanted))
	}
	return cmp.Or(strings.Join(list, ", "), s.unknown("addOns", "none"))
}

func (s *Status) drift() string {
	if len(s.Drift) == 0 {
		return s.unknown("drift", "none")
	}
	var names []string
	for _, d := range s.Drift {
		names = append(names, d.Name)
	}
	return strings.Join(names, ", ")
}

// writeDrift prints what differs from the stored configuration.
func (s *Status) writeDrift(p *printer) {
	for i, d := range s.Drift {
		if i == 0 {
			fmt.Fprintln(p.out)
		}
		fmt.Fprint(p.out, d.Diff)
	}
}

func (s *Status) backup() string {
	if b := s.LastBackup; b != nil {
		text := days(s.now.Sub(b.Time)) + " ago, " + b.Path
		if d := b.Departure; b.Error != "" && d != nil && d.Left != nil {
			return text + ", failed; the last one left this host for " + d.Target + " " + days(s.now.Sub(*d.Left)) + " ago"
		}
		if b.Error != "" {
			return text + ", failed"
		}
		return text + ", " + bytes(b.Size)
	}
	return s.unknown("lastBackup", "none")
}

func (s *Status) run() string {
	r := s.LastRun
	if r == nil {
		return s.unknown("lastRun", "none")
	}
	text := fmt.Sprintf("%s, %s ago", r.Command, days(s.now.Sub(r.Began)))
	switch took := days(time.Duration(r.Seconds * float64(time.Second))); {
	case !r.Ended():
		return text + ", has not ended"
	case *r.ExitCode == 0:
		return text + ", succeeded after " + took
	default:
		return text + fmt.Sprintf(", failed after %s with exit code %d", took, *r.ExitCode)
	}
}

func (s *Status) writeManifests(p *printer) {
	if len(s.Manifests) == 0 {
		p.row("manifests", s.unknown("manifests", "none"))
		return
	}
	fmt.Fprintln(p.out)
	table := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MANIFEST\tCHART\tSTATE\tREADY\tAPPLIED")
	for _, m := range s.Manifests {
		n := 0
		for _, o := range m.Objects {
			if o.Ready {
				n++
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d/%d\t%s\n", m.Name, cmp.Or(m.Chart, "-"), m.State, n, len(m.Objects), cmp.Or(m.Applied, "-"))
	}
	_ = table.Flush() // a lost output cancels the command
}
