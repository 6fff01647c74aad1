package overview

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/redact"
	"airlift/installer/status"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// A Report is what a page about a site shows.
type Report struct {
	Site *Site
	Time time.Time
	// File is the Kubernetes version of the file from which the plan was made.
	File string
	// Plan is what apply would do; if there is none, NoPlan is why.
	Plan   *plan.Plan
	NoPlan error
	// Findings are what the doctor of each host suspects, causes first. NoFindings is why there are none.
	Findings   map[string][]Finding
	NoFindings map[string]string
}

// A Finding is what a doctor suspects.
type Finding struct{ What, Why, Fix string }

// A page is HTML. Package html/template calls methods by name, so the linker would have to keep every method of every type
// (TestMethodsAreNotCalledByName).
type page struct{ strings.Builder }

// esc returns a text for HTML. It takes out secrets, and what changes the direction of the text around it.
func esc(text string) string { return html.EscapeString(fault.Printable(redact.Line(text))) }

// add adds HTML. Strings in args are escaped, values of the type markup are not.
func (p *page) add(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = esc(a)
		case markup:
			args[i] = string(a)
		}
	}
	fmt.Fprintf(p, format, args...)
}

type markup string

// soonDays is when a certificate is shown as one that expires soon.
const soon = 30 * 24 * time.Hour

// HTML returns the page: one file without scripts, that needs nothing from a network.
func (r *Report) HTML() []byte {
	p := &page{}
	p.begin(r.Site.Name+": cluster report", style)
	state := "bad"
	if r.Site.Healthy {
		state = "good"
	}
	p.add(`<header><p class="kind">Cluster report</p><h1>%s</h1><p class="verdict %s">%s</p><p class="time">%s</p></header>
<main>
`, r.Site.Name, state, r.Site.summary(), r.Time.UTC().Format("2006-01-02 15:04 UTC"))
	r.tiles(p)
	for _, s := range []struct {
		id, title string
		write     func(*page)
	}{
		{"wrong", "What is wrong", r.wrong}, {"topology", "Topology", r.topology}, {"versions", "Versions", r.versions},
		{"certificates", "Certificates", r.certificates}, {"backups", "Backups", r.backups}, {"drift", "Edited by hand", r.drift},
		{"plan", "What apply would do", r.plan}, {"doctor", "What the doctor suspects", r.doctor}, {"timeline", "The last run", r.timeline},
	} {
		p.add("<section id=\"%s\"><h2>%s</h2>\n", s.id, s.title)
		s.write(p)
		p.add("</section>\n")
	}
	p.add("</main>\n<footer>Secrets are redacted. Names, addresses and paths are not.</footer>\n</body></html>\n")
	return []byte(p.String())
}

// begin writes the head of a page that needs nothing from a network.
func (p *page) begin(title, style string) {
	p.add(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<style>
%s</style></head><body>
`, title, markup(style))
}

// tiles are the answers that people look for first.
func (r *Report) tiles(p *page) {
	s := r.Site
	p.add("<dl class=\"tiles\">\n")
	tile := func(name, text string, bad bool) {
		class := ""
		if bad {
			class = "bad"
		}
		if text != "" {
			p.add("<div class=\"%s\"><dt>%s</dt><dd>%s</dd></div>\n", class, name, text)
		}
	}
	tile("Nodes", fmt.Sprintf("%d of %d Ready", s.readyHosts(), len(s.Hosts)), s.readyHosts() < len(s.Hosts))
	tile("Version", s.versions(), strings.Contains(s.versions(), ","))
	tile("API", s.address(), len(s.VIP) > 0 && s.VIPOn == "")
	tile("etcd", s.etcd(), slices.ContainsFunc(s.Etcd, func(m status.EtcdMember) bool { return !m.Healthy }))
	tile("Certificates", s.nextCertificate(r.Time), s.NextCertificate != nil && s.NextCertificate.Expires.Sub(r.Time) < soon)
	tile("Last backup", cmp.Or(s.lastBackup(r.Time), "none"), s.LastBackup == nil || s.LastBackup.Error != "")
	tile("Plan", r.planned(), r.NoPlan != nil)
	p.add("</dl>\n")
}

// planned is the plan in a few words.
func (r *Report) planned() string {
	n := 0
	if r.Plan != nil {
		for _, st := range r.Plan.Stages {
			n += len(st.Actions)
		}
	}
	switch {
	case r.NoPlan != nil:
		return "could not be made"
	case r.Plan == nil:
		return "none"
	case n > 0:
		return counted(n, "action") + " to do"
	case len(r.Plan.Rest) > 0:
		return "nothing to do now"
	}
	return "nothing to do"
}

func (p *page) empty(text string) { p.add("<p class=\"empty\">%s</p>\n", text) }

// finding writes a finding in a list.
func (p *page) finding(hosts []string, f finding) {
	p.add("<li><strong>%s</strong> <span>%s</span>", strings.Join(hosts, ", "), f.What)
	if f.Why != "" {
		p.add("<br><span class=\"why\">%s</span>", f.Why)
	}
	if f.Fix != "" {
		p.add("<br><code>%s</code>", f.Fix)
	}
	p.add("</li>\n")
}

func (r *Report) wrong(p *page) {
	n := 0
	p.add("<ul class=\"findings\">\n")
	for f, hosts := range r.Site.findings() {
		n++
		p.finding(hosts, f)
	}
	p.add("</ul>\n")
	if n == 0 {
		p.empty("Nothing is wrong.")
	}
}

// topology is the picture: the address, the control planes below it, and the workers below those.
func (r *Report) topology(p *page) {
	s := r.Site
	if text := s.address(); text != "" {
		p.add("<div class=\"entry\"><span>API</span> %s", cmp.Or(s.Endpoint, text))
		if len(s.VIP) > 0 {
			p.add("<br><small>virtual address %s</small>", text)
		}
		if s.Balancer {
			p.add("<br><small>with a balancer on each node</small>")
		}
		p.add("</div>\n<div class=\"line\"></div>\n")
	}
	for i, part := range s.sections() {
		if i > 0 {
			p.add("<div class=\"line\"></div>\n")
		}
		p.add("<div class=\"group\"><h3>%s</h3><div class=\"cards\">\n", part.title)
		for _, h := range part.hosts {
			r.card(p, h)
		}
		p.add("</div></div>\n")
	}
	if len(s.Others) > 0 {
		p.add("<div class=\"group\"><h3>Not in cluster.yaml</h3><div class=\"cards\">\n")
		for _, n := range s.Others {
			class, state := classes[red], "NotReady"
			if n.Ready {
				class, state = classes[yellow], ready
			}
			p.add("<article class=\"card %s\"><h4>%s</h4><p class=\"state\">%s</p><p>%s</p></article>\n", class, n.Name, state, n.Version)
		}
		p.add("</div></div>\n")
	}
}

// classes are the classes of the page for the colors of a terminal.
var classes = map[color]string{red: "bad", yellow: "odd", green: "good"}

func (r *Report) card(p *page, h *Host) {
	p.add("<article class=\"card %s\"><h4>%s</h4><p class=\"state\">%s</p>", classes[h.color()], h.Name, h.State())
	p.add("<p>%s<br>%s</p>", h.version(), h.Address)
	if text := h.serves(); text != "-" {
		p.add("<p class=\"serves\">")
		for _, one := range strings.Split(text, ", ") {
			p.add("<b>%s</b> ", one)
		}
		p.add("</p>")
	}
	if text := h.count(); text != "-" {
		p.add("<p class=\"why\">%s</p>", text)
	}
	if h.Error != "" {
		p.add("<p class=\"why\">%s</p>", h.Error)
	}
	p.add("</article>\n")
}

// table writes a table. On a narrow screen, each row is a list with the names of the columns.
func (p *page) table(columns []string, rows [][]markup) {
	p.add("<table><thead><tr>")
	for _, c := range columns {
		p.add("<th>%s</th>", c)
	}
	p.add("</tr></thead><tbody>\n")
	for _, row := range rows {
		p.add("<tr>")
		for i, text := range row {
			p.add("<td data-column=\"%s\">%s</td>", columns[i], text)
		}
		p.add("</tr>\n")
	}
	p.add("</tbody></table>\n")
}

func cells(texts ...string) (row []markup) {
	for _, text := range texts {
		row = append(row, markup(esc(cmp.Or(text, "-"))))
	}
	return row
}

func (r *Report) versions(p *page) {
	var rows [][]markup
	for i := range r.Site.Hosts {
		h := &r.Site.Hosts[i]
		var containerd, runc, system, kernel string
		if st := h.Status; st != nil {
			containerd, runc, system, kernel = st.Versions.Host.Containerd, st.Versions.Host.Runc, st.Node.OS, st.Node.Kernel
		}
		if h.Facts != nil {
			system = cmp.Or(system, h.Facts.OS)
		}
		rows = append(rows, cells(h.Name, h.version(), containerd, runc, system, kernel, h.last()))
	}
	p.add("<p>The cluster stores %s. The plan below was made with a file for %s.</p>\n", cmp.Or(r.Site.Version, "no version that is known"), cmp.Or(r.File, "no Kubernetes version"))
	p.table([]string{"Host", "Kubernetes", "containerd", "runc", "System", "Kernel", "Last command"}, rows)
}

// certificates has each certificate once, with the host on which it expires first.
func (r *Report) certificates(p *page) {
	first, hosts := map[string]Certificate{}, map[string]int{}
	for i := range r.Site.Hosts {
		h := &r.Site.Hosts[i]
		if h.Status == nil {
			continue
		}
		for _, c := range h.Status.Certificates {
			if c.Missing {
				continue
			}
			hosts[c.Name]++
			if was, ok := first[c.Name]; !ok || c.Expires.Before(was.Expires) {
				first[c.Name] = Certificate{h.Name, c}
			}
		}
	}
	if len(first) == 0 {
		p.empty("No host reported certificates.")
		return
	}
	var rows [][]markup
	for _, c := range slices.SortedFunc(maps.Values(first), func(a, b Certificate) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Name, b.Name))
	}) {
		left := c.Expires.Sub(r.Time)
		text := markup(esc("in " + span(left)))
		switch {
		case left <= 0:
			text = `<b class="bad">expired</b>`
		case left < soon:
			text = `<b class="odd">` + text + `</b>`
		}
		rows = append(rows, append(cells(c.Name, c.Expires.UTC().Format(time.DateOnly)), text, markup(esc(c.Host)), markup(esc(counted(hosts[c.Name], "host")))))
	}
	p.table([]string{"Certificate", "First expires", "", "On", "Exists on"}, rows)
}

func (r *Report) backups(p *page) {
	var rows [][]markup
	for i := range r.Site.Hosts {
		h := &r.Site.Hosts[i]
		if h.Status == nil || h.Status.LastBackup == nil {
			continue
		}
		b := h.Status.LastBackup
		result := markup(esc(progress.Bytes(b.Size)))
		if b.Error != "" {
			result = markup(`<b class="bad">failed:</b> ` + esc(b.Error))
		}
		rows = append(rows, append(cells(h.Name, b.Time.UTC().Format("2006-01-02 15:04 UTC"), b.Path), result))
	}
	if len(rows) == 0 {
		p.empty("No control plane that answers has recorded a backup. Backups that 'cluster backup' brings to the operator's machine are not recorded.")
		return
	}
	p.table([]string{"Host", "Time", "File", "Result"}, rows)
}

func (r *Report) drift(p *page) {
	type edit struct {
		host string
		status.Drift
	}
	var all []edit
	var unknown []findingOf
	for i := range r.Site.Hosts {
		h := &r.Site.Hosts[i]
		for _, d := range h.Drift {
			d.Diff = "" // it is long, and the command that shows it is in the list
			all = append(all, edit{h.Name, d})
		}
		if h.Status != nil && h.Status.Unknown[driftPart] != "" {
			unknown = append(unknown, findingOf{h.Name, finding{What: "unknown: " + h.Status.Unknown[driftPart]}})
		}
	}
	if len(all)+len(unknown) == 0 {
		p.empty("Nothing was edited by hand on hosts that answer.")
		return
	}
	p.add("<ul class=\"findings\">\n")
	for d, hosts := range Shared(all, func(e edit) (string, status.Drift) { return e.host, e.Drift }) {
		what := d.Name + " was edited by hand"
		if d.Cause == status.Behind {
			what = d.Name + " does not follow the stored configuration"
		}
		if d.Keep != "" {
			what += "; to keep it, use " + d.Keep
		}
		p.finding(hosts, finding{What: what})
	}
	for f, hosts := range Shared(unknown, func(f findingOf) (string, finding) { return f.host, f.finding }) {
		p.finding(hosts, f)
	}
	p.add("</ul>\n")
}

func (r *Report) plan(p *page) {
	if r.NoPlan != nil {
		p.add("<p>No plan could be made:</p>\n<pre>%s</pre>\n", r.NoPlan.Error())
		return
	}
	if r.Plan == nil || len(r.Plan.Stages)+len(r.Plan.Rest) == 0 {
		p.empty("Nothing: the hosts match cluster.yaml and the file.")
		return
	}
	type action struct{ stage, what, effect, why string }
	type actionOf struct {
		host string
		action
	}
	type fileOf struct {
		host string
		facts.FileChange
	}
	var actions []actionOf
	var files []fileOf
	for _, st := range r.Plan.Stages {
		for _, a := range st.Actions {
			what := a.Verb
			if a.From != "" && a.From != a.To {
				what += ", " + a.From + " → " + a.To
			}
			actions = append(actions, actionOf{a.Host, action{st.Name, what, a.Effect, strings.Join(append([]string{a.Why}, a.Changes...), ", ")}})
			for _, f := range a.Files {
				files = append(files, fileOf{a.Host, f})
			}
		}
	}
	var rows [][]markup
	for a, hosts := range Shared(actions, func(a actionOf) (string, action) { return a.host, a.action }) {
		rows = append(rows, cells(a.stage, strings.Join(hosts, ", "), a.what, a.effect, a.why))
	}
	if len(rows) > 0 {
		p.table([]string{"Stage", "Hosts", "Action", "Effect on pods", "Why"}, rows)
	}
	p.add("<ul>\n")
	for _, rest := range r.Plan.Rest {
		p.add("<li><strong>%s</strong> %s; <code>%s</code></li>\n", rest.Outcome, rest.What, rest.Hint)
	}
	if r.Plan.Wait != "" {
		p.add("<li><strong>waiting</strong> %s</li>\n", r.Plan.Wait)
	}
	for _, n := range r.Plan.Notes {
		p.add("<li>%s</li>\n", n)
	}
	p.add("</ul>\n")
	for f, hosts := range Shared(files, func(f fileOf) (string, facts.FileChange) { return f.host, f.FileChange }) {
		p.add("<h4>%s on %s</h4>\n<pre>%s</pre>\n", f.Name, strings.Join(hosts, ", "), cmp.Or(f.Instead(), f.Diff))
	}
}

func (r *Report) doctor(p *page) {
	type of struct {
		host string
		Finding
	}
	var all []of
	var failed []string
	for i := range r.Site.Hosts {
		name := r.Site.Hosts[i].Name
		for _, f := range r.Findings[name] {
			all = append(all, of{name, f})
		}
		if r.NoFindings[name] != "" {
			failed = append(failed, name)
		}
	}
	if len(all)+len(failed) == 0 {
		p.empty("Nothing suspicious was found on hosts that answer.")
		return
	}
	p.add("<ol class=\"findings\">\n")
	for f, hosts := range Shared(all, func(o of) (string, Finding) { return o.host, o.Finding }) {
		p.finding(hosts, finding{What: f.What, Why: f.Why, Fix: f.Fix})
	}
	for _, name := range failed {
		p.finding([]string{name}, finding{What: "the doctor could not be asked: " + r.NoFindings[name]})
	}
	p.add("</ol>\n")
}

// A bar is a command of a host in the timeline.
type bar struct {
	host        string
	run         facts.Run
	began, ends time.Time
}

// pause is the time between two commands that do not belong to one run.
const pause = 10 * time.Minute

// snapshot is a command of a timer, which is no run that a person began.
const snapshot = "etcd snapshot"

// lastRun returns the commands of the last run, newest first.
func (s *Site) lastRun(now time.Time) (bars []bar) {
	var all []bar
	for _, h := range s.Hosts {
		if h.Facts == nil {
			continue
		}
		for _, one := range h.Facts.Runs {
			b := bar{h.Name, one, one.Began, one.Began}
			switch {
			case one.Ended != nil:
				b.ends = *one.Ended
			case one.ExitCode == nil && now.Sub(one.Began) < time.Hour: // it runs, or was killed
				b.ends = now
			}
			all = append(all, b)
		}
	}
	slices.SortStableFunc(all, func(a, b bar) int { return b.ends.Compare(a.ends) })
	var from time.Time
	for _, b := range all {
		switch {
		case len(bars) == 0 && b.run.Command == snapshot:
		case len(bars) == 0, from.Sub(b.ends) < pause:
			bars = append(bars, b)
			if len(bars) == 1 || b.began.Before(from) {
				from = b.began
			}
		default:
			return bars
		}
	}
	return bars
}

func (r *Report) timeline(p *page) {
	bars := r.Site.lastRun(r.Time)
	if len(bars) == 0 {
		p.empty("No host that answers has recorded a command.")
		return
	}
	from, to := bars[0].began, bars[0].ends
	for _, b := range bars {
		if b.began.Before(from) {
			from = b.began
		}
		if b.ends.After(to) {
			to = b.ends
		}
	}
	whole := max(to.Sub(from), time.Second)
	p.add("<p>%s to %s, %s. The times are from the clocks of the hosts.</p>\n<div class=\"timeline\">\n", from.UTC().Format("2006-01-02 15:04:05"), to.UTC().Format("15:04:05 UTC"), span(whole))
	for i := range r.Site.Hosts {
		name := r.Site.Hosts[i].Name
		var own []bar
		for _, b := range bars {
			if b.host == name {
				own = append(own, b)
			}
		}
		slices.Reverse(own)
		for j, b := range own {
			class, end := "good", ""
			switch {
			case b.run.ExitCode == nil:
				class, end = "odd", ", unfinished"
			case *b.run.ExitCode != 0:
				class, end = "bad", fmt.Sprintf(", failed (%d)", *b.run.ExitCode)
			}
			label := name
			if j > 0 {
				label = ""
			}
			left, width := 100*b.began.Sub(from).Seconds()/whole.Seconds(), 100*b.ends.Sub(b.began).Seconds()/whole.Seconds()
			p.add("<div class=\"row\"><span class=\"who\">%s</span><span class=\"track\"><i class=\"%s\" style=\"left:%s;width:%s\"></i></span><span class=\"what\">%s</span></div>\n",
				label, class, fmt.Sprintf("%.2f%%", left), fmt.Sprintf("%.2f%%", max(width, 0.5)), b.run.Command+", "+span(b.ends.Sub(b.began))+end)
		}
	}
	p.add("</div>\n")
}
