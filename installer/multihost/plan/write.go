package plan

import (
	"fmt"
	"io"
	"strings"

	"airlift/internal/fault"
)

// width of the text in columns, for a terminal next to another one.
const width = 100

// Write prints the plan for a terminal, with lines of at most 100 columns.
func (p *Plan) Write(w io.Writer) error {
	var b strings.Builder
	hosts := map[string]bool{}
	names, verbs, actions := 4, 4, 0
	for _, st := range p.Stages {
		for _, a := range st.Actions {
			hosts[a.Host] = true
			actions++
			names, verbs = max(names, len(a.Host)), max(verbs, len(a.Verb))
		}
	}
	switch {
	case actions == 0 && len(p.Rest) == 0:
		fmt.Fprintf(&b, "Cluster %s (%s): nothing to do.\n", p.Cluster, p.Version)
	case actions == 0:
		fmt.Fprintf(&b, "Cluster %s (%s): nothing to do now.\n", p.Cluster, p.Version)
	default:
		fmt.Fprintf(&b, "Cluster %s (%s): %s on %s.\n", p.Cluster, p.Version, count(actions, "action"), count(len(hosts), "host"))
	}
	for i, st := range p.Stages {
		fmt.Fprintf(&b, "\n%d. %s%s\n", i+1, st.Name, st.rules())
		for _, a := range st.Actions {
			a.write(&b, min(names, 30), verbs)
		}
	}
	p.writeFiles(&b)
	if len(p.Rest) > 0 || p.Wait != "" {
		b.WriteString("\n")
	}
	if p.Wait != "" {
		wrap(&b, "Waiting: ", p.Wait+"; apply waits until then")
	}
	for _, r := range p.Rest {
		wrap(&b, strings.ToUpper(r.Outcome[:1])+r.Outcome[1:]+": ", r.What+"; "+r.Hint)
	}
	if len(p.Notes) > 0 {
		b.WriteString("\nNotes:\n")
	}
	for _, n := range p.Notes {
		wrap(&b, "  - ", n)
	}
	_, err := io.WriteString(w, fault.Printable(b.String())) // it has names and versions from hosts
	return err
}

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
	if len(list) == 0 {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

func (a Action) write(b *strings.Builder, names, verbs int) {
	text := a.Why
	if a.From != "" && a.From != a.To {
		text = fmt.Sprintf("%s → %s: %s", a.From, a.To, a.Why)
	}
	switch list := strings.Join(a.Changes, ", "); {
	case list == "":
	case a.Verb == NodeMeta:
		text = list
	default:
		text += ": " + list
	}
	wrap(b, fmt.Sprintf("   %-*s  %-*s  %-7s  ", names, a.Host, verbs, a.Verb, a.Effect), text)
}

// writeFiles writes what changes in files and objects. Diffs are not wrapped.
func (p *Plan) writeFiles(b *strings.Builder) {
	for _, st := range p.Stages {
		for _, a := range st.Actions {
			for i, f := range a.Files {
				if i == 0 {
					fmt.Fprintf(b, "\nChanges on %s:\n\n", a.Host)
				}
				if f.Diff == "" {
					fmt.Fprintf(b, "%s changes: its contents are not shown\n", f.Name)
				}
				b.WriteString(f.Diff)
			}
		}
	}
}

// wrap writes text behind first, and further lines under its begin. A word longer than a line is cut: a label may have
// 317 characters.
func wrap(b *strings.Builder, first, text string) {
	indent := min(len([]rune(first)), width/2)
	if len([]rune(first)) > width/2 {
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
	b.WriteString("\n")
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
