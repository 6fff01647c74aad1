package overview

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"airlift/installer/status"
	"airlift/internal/fault"
)

// span is a time for people: "364d", "2y11d".
func span(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// A color is a sequence of ECMA-48, or "".
type color string

const (
	red    color = "\x1b[31m"
	green  color = "\x1b[32m"
	yellow color = "\x1b[33m"
	bold   color = "\x1b[1m"
	plain  color = "\x1b[0m"
)

type cell struct {
	text  string
	color color
}

func (h *Host) color() color {
	switch {
	case !h.isReady():
		return red
	case h.State() != ready || len(h.own()) > 0:
		return yellow
	}
	return green
}

// attention marks a host that needs it, also where there are no colors.
func (h *Host) attention() string {
	if h.color() == green {
		return "  "
	}
	return "! "
}

// Lines returns the text for a terminal: the lines of the summary, those of the hosts, and those of what is wrong.
func (s *Site) lines(now time.Time) (top, hosts, wrong [][]cell) {
	head := green
	if !s.Healthy {
		head = red
	}
	top = [][]cell{{{"cluster " + s.Name + ": ", bold}, {s.summary(), head}}, nil}
	for _, row := range [][2]string{{"version", s.versions()}, {"API", s.address()}, {"etcd", s.etcd()}, {"certificates", s.nextCertificate(now)}, {"backup", s.lastBackup(now)}} {
		if row[1] != "" {
			top = append(top, []cell{{fmt.Sprintf("  %-14s", row[0]), ""}, {row[1], ""}})
		}
	}
	hosts = s.table()
	if g := s.gate; g != nil {
		wrong = append(wrong, nil, []cell{{fmt.Sprintf("The last batch of a roll (%s: %s) has not passed its checks. The next apply begins with them.", g.Stage, strings.Join(g.Hosts, ", ")), ""}})
	}
	for f, names := range s.findings() {
		text := strings.Join(names, ", ")
		if !strings.HasPrefix(f.What, "does not answer: ") {
			text += ":"
		}
		wrong = append(wrong, nil, []cell{{text + " ", bold}, {f.What, ""}})
		if f.Fix != "" {
			wrong = append(wrong, []cell{{"    hint: " + f.Fix, ""}})
		}
	}
	return top, hosts, wrong
}

// table has the hosts in columns.
func (s *Site) table() [][]cell {
	var rows [][]cell
	for i, part := range s.sections() {
		rows = append(rows, nil)
		head := []cell{{strings.ToUpper(part.title), bold}}
		if i == 0 {
			for _, name := range []string{"STATE", "VERSION", "SERVES", "LAST COMMAND", "PROBLEMS"} {
				head = append(head, cell{name, bold})
			}
		}
		rows = append(rows, head)
		for _, h := range part.hosts {
			rows = append(rows, []cell{{h.attention() + h.Name, ""}, {h.State(), h.color()}, {h.version(), ""}, {h.serves(), ""}, {h.last(), ""}, {h.count(), ""}})
		}
	}
	if len(s.Others) > 0 {
		rows = append(rows, nil, []cell{{"NOT IN CLUSTER.YAML", bold}})
		for _, n := range s.Others {
			state := cell{ready, green}
			if !n.Ready {
				state = cell{"NotReady", red}
			}
			rows = append(rows, []cell{{"  " + n.Name, ""}, state, {n.Version, ""}})
		}
	}
	return aligned(rows)
}

// aligned pads the cells of all columns to the same widths.
func aligned(rows [][]cell) [][]cell {
	var widths []int
	for _, row := range rows {
		if len(row) == 1 { // a title
			continue
		}
		for i, c := range row {
			if len(widths) == i {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range rows {
		for i := range row {
			if i < len(row)-1 {
				row[i].text += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i].text)+2)
			}
		}
	}
	return rows
}

// render returns a line of at most width characters; 0 is no limit.
func render(line []cell, width int, colors bool) string {
	var b strings.Builder
	room := width
	for _, c := range line {
		text := fault.Printable(strings.ReplaceAll(c.text, "\n", " "))
		if r := []rune(text); width > 0 && len(r) > room {
			text = string(r[:max(room-1, 0)]) + "…"
			if room <= 0 {
				break
			}
		}
		room -= utf8.RuneCountInString(text)
		if colors && c.color != "" {
			text = string(c.color) + text + string(plain)
		}
		b.WriteString(text)
	}
	return strings.TrimRight(b.String(), " ")
}

// Write prints the site for people. It cuts nothing.
func (s *Site) Write(out io.Writer, colors bool) error {
	top, hosts, wrong := s.lines(time.Now())
	var b strings.Builder
	for _, line := range slices.Concat(top, hosts, wrong) {
		b.WriteString(render(line, 0, colors) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// Screen returns the site for a screen of this size. If it is too small, hosts that need no attention are only counted.
func (s *Site) Screen(now time.Time, width, height int, colors bool) string {
	top, hosts, wrong := s.lines(now)
	all := slices.Concat(top, hosts, wrong)
	if len(all) > height {
		hidden := 0
		hosts = slices.DeleteFunc(hosts, func(row []cell) bool {
			fine := len(row) > 1 && row[1].color == green && strings.HasPrefix(row[0].text, "  ")
			if fine {
				hidden++
			}
			return fine
		})
		if hidden > 0 {
			hosts = append(hosts, []cell{{fmt.Sprintf("  and %d that are Ready", hidden), ""}})
		}
		all = slices.Concat(top, hosts, wrong)
	}
	if len(all) > height {
		all = append(all[:max(height-1, 0)], []cell{{"…", ""}})
	}
	var b strings.Builder
	for _, line := range all {
		b.WriteString(render(line, width, colors) + "\n")
	}
	return b.String()
}

// Changes returns what is different from an earlier look, a line each.
func (s *Site) Changes(before *Site) (list []string) {
	add := func(what, was, is string) {
		if was != is {
			list = append(list, fmt.Sprintf("%s: %s → %s", what, was, is))
		}
	}
	for i := range s.Hosts {
		h, was := &s.Hosts[i], &before.Hosts[i]
		state := h.State()
		if h.Error != "" {
			state += ": " + h.Error
		}
		if h.State() != was.State() {
			add(h.Name, was.State(), state)
		}
		if h.Error == "" && was.Error == "" { // little is known of another one
			add(h.Name+": version", was.version(), h.version())
			add(h.Name+": last command", was.last(), h.last())
			news(&list, h.Name, "problem", was.own(), h.own())
			news(&list, h.Name, "warning", was.Warnings, h.Warnings)
		}
	}
	add("API", before.address(), s.address())
	add("etcd", before.etcd(), s.etcd())
	names := func(s *Site) (all []string) {
		for _, n := range s.Others {
			all = append(all, n.Name)
		}
		return all
	}
	add("nodes that are not in cluster.yaml", dash(names(before)), dash(names(s)))
	return list
}

func dash(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// news adds the problems that are new, and those that are solved.
func news(list *[]string, host, kind string, was, is []status.Problem) {
	has := func(all []status.Problem, p status.Problem) bool {
		return slices.ContainsFunc(all, func(o status.Problem) bool { return o.Part == p.Part && steady(o.Message) == steady(p.Message) })
	}
	for _, p := range is {
		if !has(was, p) {
			*list = append(*list, fmt.Sprintf("%s: %s: %s: %s", host, kind, p.Part, p.Message))
		}
	}
	for _, p := range was {
		if !has(is, p) {
			*list = append(*list, fmt.Sprintf("%s: solved: %s: %s", host, p.Part, p.Message))
		}
	}
}

// amount is a time or a size, which changes by itself.
var amount = regexp.MustCompile(`\b[0-9]+(?:\.[0-9]+)?(?: ?[kMG]?B|[a-zµ]{1,2}(?:[0-9.]+[a-zµ]{1,2})*)\b`)

// steady is a message without amounts.
func steady(message string) string { return amount.ReplaceAllString(message, "#") }
