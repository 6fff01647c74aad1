package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"airlift/installer/multihost/facts"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

const (
	// fileWidth is the width of the text in columns where there is no terminal.
	fileWidth = 100
	// leastText is how many columns the last one of a table has at least.
	leastText = 24
)

// Text returns the plan for people, for a terminal with so many columns; 0: for a file.
func (p *Plan) Text(columns int, colors bool) string {
	if columns <= 0 {
		columns = fileWidth
	}
	w := &page{width: max(columns, 3*leastText), colors: colors}
	w.plan(p)
	return w.String()
}

// A page is the text of a plan.
type page struct {
	strings.Builder
	width        int
	colors       bool
	hosts, verbs int // widths of columns
	names        map[string]bool
	kinds        map[string]int // actions, by their mark
	actions      int
}

// Marks of actions, as terraform has them, and what they count as.
const added, changed, removed = "+", "~", "-"

var markColors = map[string]string{added: progress.Green, changed: progress.Yellow, removed: progress.Red}

func (a Action) mark() string {
	switch a.Verb {
	case Init, Join:
		return added
	case Remove, RemoveOff:
		return removed
	}
	return changed
}

// color colors a text that has been cleaned.
func (w *page) color(color, text string) string {
	if !w.colors {
		return text
	}
	return color + text + progress.Plain
}

// printf adds a text. It may have names and versions from hosts.
func (w *page) printf(format string, args ...any) {
	w.WriteString(fault.Printable(fmt.Sprintf(format, args...)))
}

func (w *page) plan(p *Plan) {
	w.measure(p)
	switch {
	case w.actions == 0 && len(p.Rest) == 0:
		w.printf("Cluster %s (%s): nothing to do.\n", p.Cluster, p.Version)
	case w.actions == 0:
		w.printf("Cluster %s (%s): nothing to do now.\n", p.Cluster, p.Version)
	default:
		w.printf("Cluster %s (%s): %s on %s.\n\n", p.Cluster, p.Version, count(w.actions, "action"), count(len(w.names), "host"))
		w.WriteString(w.color(progress.Bold, fmt.Sprintf("   %-*s  %-*s  %-7s  %s", w.hosts, "HOSTS", w.verbs, "ACTION", "EFFECT", "REASON")) + "\n")
	}
	for i, st := range p.Stages {
		w.printf("%s", wrap(w.width, fmt.Sprintf("%d. ", i+1), st.Name+st.rules()))
		for _, e := range entriesOf(st) {
			w.entry(e)
		}
	}
	w.pods(p)
	if len(p.MayFail) > 0 {
		w.printf("\nRequests that may fail meanwhile:\n")
	}
	for _, text := range p.MayFail {
		w.printf("%s", wrap(w.width, "  - ", text))
	}
	w.files(p)
	if len(p.Rest) > 0 || p.Wait != "" {
		w.printf("\n")
	}
	if p.Wait != "" {
		w.printf("%s", wrap(w.width, "Waiting: ", p.Wait+"; apply waits until then"))
	}
	for _, r := range p.Rest {
		w.printf("%s", wrap(w.width, strings.ToUpper(r.Outcome[:1])+r.Outcome[1:]+": ", r.What+"; "+r.Hint))
	}
	if len(p.Notes) > 0 {
		w.printf("\nNotes:\n")
	}
	for _, n := range p.Notes {
		w.printf("%s", wrap(w.width, "  - ", n))
	}
	if w.actions > 0 {
		w.WriteString("\n" + w.color(progress.Bold, w.totals(p)) + "\n")
	}
}

// measure finds out how wide the columns are, and counts.
func (w *page) measure(p *Plan) {
	w.names, w.kinds, w.hosts, w.verbs = map[string]bool{}, map[string]int{}, len("HOSTS"), len("ACTION")
	for _, st := range p.Stages {
		for _, e := range entriesOf(st) {
			w.hosts, w.verbs = max(w.hosts, utf8.RuneCountInString(w.cell(e))), max(w.verbs, len(e.Verb))
			for _, name := range e.hosts {
				w.names[name] = true
			}
			w.kinds[e.mark()] += len(e.hosts)
			w.actions += len(e.hosts)
		}
	}
}

// totals is the last line.
func (w *page) totals(p *Plan) string {
	by := "as long as the last runs on these hosts took"
	if !p.FromRuns {
		by = "an estimate, because these hosts have no such runs yet"
	}
	if slices.ContainsFunc(p.Stages, func(st Stage) bool { return len(st.Windows) > 0 }) {
		by += "; waits for windows are not included"
	}
	return strings.TrimSuffix(wrap(w.width, "Plan: ", fmt.Sprintf("%d to add, %d to change, %d to remove; about %s (%s).",
		w.kinds[added], w.kinds[changed], w.kinds[removed], span(p.Seconds), by)), "\n")
}

func span(seconds int) string { return progress.Span(time.Duration(seconds) * time.Second) }

// rules returns how the hosts of a stage follow each other.
func (st Stage) rules() string {
	var list []string
	if len(st.Actions) > 1 {
		how := "one by one"
		if st.Limit > 1 {
			how = fmt.Sprintf("at most %d at once", st.Limit)
		}
		list = append(list, how)
	}
	list = append(list, st.Windows...)
	list = append(list, "about "+span(st.Seconds))
	return " (" + strings.Join(list, ", ") + ")"
}

// An entry is equal actions of hosts.
type entry struct {
	Action
	hosts []string
}

// entriesOf returns the actions of a stage, equal ones in one entry. Where hosts follow each other, the entries keep their order.
func entriesOf(st Stage) (list []entry) {
	for _, a := range st.Actions {
		e := entry{a, []string{a.Host}}
		e.Host, e.Pods, e.Commands, e.Seconds = "", nil, nil, 0
		i := slices.IndexFunc(list, func(other entry) bool { return reflect.DeepEqual(other.Action, e.Action) })
		if i < 0 || st.Limit <= 1 && i < len(list)-1 {
			list = append(list, e)
		} else {
			list[i].hosts = append(list[i].hosts, a.Host)
		}
	}
	return list
}

// cell returns the hosts of an entry in their column, or how many there are: then they follow in lines of their own.
func (w *page) cell(e entry) string {
	if text := strings.Join(e.hosts, ", "); utf8.RuneCountInString(text) <= w.width*3/10 {
		return text
	}
	return count(len(e.hosts), "host")
}

func (w *page) entry(e entry) {
	text := e.Why
	if e.From != "" && e.From != e.To {
		text = fmt.Sprintf("%s → %s: %s", e.From, e.To, e.Why)
	}
	switch list := strings.Join(e.Changes, ", "); {
	case list == "":
	case e.Verb == NodeMeta:
		text = list
	default:
		text += ": " + list
	}
	cell := w.cell(e)
	mark := e.mark()
	w.WriteString(" " + w.color(markColors[mark], mark) + " ")
	rest := wrap(w.width, fmt.Sprintf("   %-*s  %-*s  %-7s  ", w.hosts, cell, w.verbs, e.Verb, e.Effect), text)
	w.printf("%s", rest[3:])
	if cell != strings.Join(e.hosts, ", ") {
		w.printf("%s", wrap(w.width, "     ", strings.Join(e.hosts, ", ")))
	}
}

// pods writes which pods move. Those of nodes that are drained twice move twice, and are there once.
func (w *page) pods(p *Plan) {
	moving := map[string][]facts.PodGroup{}
	names := 0
	for _, st := range p.Stages {
		for _, a := range st.Actions {
			if len(a.Pods) > 0 {
				moving[a.Host] = a.Pods
				names = max(names, utf8.RuneCountInString(a.Host))
			}
		}
	}
	if len(moving) > 0 {
		w.printf("\nPods that move to other nodes:\n")
	}
	for _, host := range sortedKeys(moving) {
		var list []string
		sum := 0
		for _, g := range moving[host] {
			sum += g.Pods
			name := g.Workload
			if g.Pods > 1 {
				name += fmt.Sprintf(" (%d)", g.Pods)
			}
			list = append(list, name)
		}
		w.printf("%s", wrap(w.width, fmt.Sprintf("   %-*s  ", min(names, w.width*3/10), host), fmt.Sprintf("%s: %s", count(sum, "pod"), strings.Join(list, ", "))))
	}
}

// files writes what changes in files and objects. Diffs are not wrapped.
func (w *page) files(p *Plan) {
	for _, st := range p.Stages {
		for _, e := range entriesOf(st) {
			for i, f := range e.Files {
				if i == 0 {
					w.printf("\nChanges on %s:\n\n", strings.Join(e.hosts, ", "))
				}
				diff := fault.Printable(f.Diff)
				switch instead := f.Instead(); {
				case f.Removed:
					w.printf("%s: %s\n", f.Name, instead)
				case instead != "":
					w.printf("%s changes: %s\n", f.Name, instead)
				case w.colors:
					w.WriteString(progress.ColoredDiff(diff))
				default:
					w.WriteString(diff)
				}
			}
		}
	}
}

// wrap returns text behind first, and further lines under its begin. A word longer than a line is cut: a label may have
// 317 characters.
func wrap(width int, first, text string) string {
	var b strings.Builder
	indent := min(utf8.RuneCountInString(first), width-leastText)
	if utf8.RuneCountInString(first) > indent {
		b.WriteString(strings.TrimRight(first, " ") + "\n")
		first = strings.Repeat(" ", indent)
	}
	b.WriteString(first)
	column := indent
	for i, word := range strings.Fields(text) {
		r := []rune(word)
		if i > 0 && column+1+len(r) <= width {
			b.WriteString(" ")
			column++
		} else if i > 0 {
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		}
		for len(r) > width-column {
			b.WriteString(string(r[:width-column]) + "\n" + strings.Repeat(" ", indent))
			r = r[width-column:]
			column = indent
		}
		b.WriteString(string(r))
		column += len(r)
	}
	return b.String() + "\n"
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
