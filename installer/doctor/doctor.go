// Package doctor gathers facts for an engineer who examines this host but cannot log in to it. It
// also lists suspicious findings. It changes nothing on the host. Each kind of fact has its own
// file.
//
// Everything that leaves this package is redacted by package redact: each source names the form of
// its text.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"airlift/installer/endpoint/vip"
	"airlift/installer/host"
	"airlift/installer/preflight"
	"airlift/installer/redact"
	"airlift/installer/status"
)

// Limits, documented in docs/status.md.
const (
	sourceTimeout = 20 * time.Second // of one source, also one that hangs
	atOnce        = 6                // sources that are read in parallel
	entryLimit    = 4 << 20          // of one file; of a larger one, the end is kept
)

// Options are the user's.
type Options struct {
	Since   time.Duration // how far back logs, the journal and events go
	MaxSize int64         // of all files together, in bytes, before they are compressed
	// LogsOf are namespaces of the site whose pods' logs are gathered, too.
	LogsOf []string
}

// A Doctor gathers facts about a host.
type Doctor struct {
	Host    *host.Host
	Reader  *status.Reader
	Options Options
	// Progress is called with the name of the current source; it may be nil.
	Progress func(what string)

	began time.Time
}

// An Entry is one file of the archive. Its content is redacted.
type Entry struct {
	Name    string
	Content []byte
}

// A Report is everything that was gathered.
type Report struct {
	Host       string
	Began      time.Time
	Suspicions []Suspicion
	Entries    []Entry
	// LeftOut are entries for which the size limit left no room.
	LeftOut []string
	// SiteLogs are the namespaces of Options.LogsOf, with the number of logs on this host.
	SiteLogs []string
}

// A source is one file of the archive. What it reads is redacted in its form.
type source struct {
	name string
	form redact.Form
	read func(context.Context) ([]byte, error)
}

// Gather reads all sources. A source that fails or hangs costs only its own file, which then
// has the reason. It returns an error only if ctx ends.
func (d *Doctor) Gather(ctx context.Context) (*Report, error) {
	d.began = time.Now()
	d.Options.LogsOf = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(d.Options.LogsOf))), isComponents)
	if d.Progress == nil {
		d.Progress = func(string) {}
	}
	d.Progress("the state of this node")
	s, err := d.Reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	for i := range s.Drift { // the files are in the archive, redacted
		s.Drift[i].Diff = ""
	}
	report := &Report{Host: s.Node.Name, Began: d.began}
	examined := d.examine(ctx, s)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, namespace := range d.Options.LogsOf {
		report.SiteLogs = append(report.SiteLogs, fmt.Sprintf("%s (log files: %d)", namespace, len(d.logFiles(namespace))))
	}
	report.Suspicions = suspect(examined)
	for i, one := range report.Suspicions {
		report.Suspicions[i] = one.redacted()
	}

	var text strings.Builder
	s.Write(&text, 0)
	statusJSON, err := indented(s)
	if err != nil {
		return nil, err
	}
	suspicions, err := indented(report.Suspicions)
	if err != nil {
		return nil, err
	}
	checks, err := indented(examined.checks)
	if err != nil {
		return nil, err
	}
	fixed := []Entry{
		{"status.json", redact.As[status.Status]()(statusJSON)}, {"status.txt", redact.Log([]byte(text.String()))},
		{"suspicions.json", suspicions}, {"preflight.json", redact.As[preflight.Report]()(checks)},
		{"clock.txt", redact.Log([]byte(examined.clock.text()))},
	}
	gathered := append(fixed, d.readAll(ctx, d.sources(s, examined))...)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	report.Entries, report.LeftOut = fit(gathered, d.Options.MaxSize)
	report.Entries = append([]Entry{{"summary.txt", []byte(report.Summary())}}, report.Entries...)
	slices.SortFunc(report.Entries[1:], func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return report, nil
}

// sources lists what is gathered, the most useful first: the size limit takes away from the
// end.
func (d *Doctor) sources(s *status.Status, e examined) (list []source) {
	return slices.Concat(
		d.configuration(), d.certificates(), d.hostFacts(), d.network(), d.units(),
		d.apiObjects(s, e), d.containers(e), d.journals(), d.containerLogs(),
	)
}

// readAll reads sources in parallel, and returns their entries in the same order.
func (d *Doctor) readAll(ctx context.Context, sources []source) []Entry {
	entries := make([]Entry, len(sources))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, s := range sources {
		wg.Go(func() {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-slots }()
			d.Progress(s.name)
			entries[i] = Entry{s.name, readOne(ctx, s)}
		})
	}
	wg.Wait()
	return entries
}

// readOne reads and redacts a source within its time limit. It does not wait for a source that
// ignores the end of its context, such as a read from a hanging file system.
func readOne(ctx context.Context, s source) []byte {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	type answer struct {
		text []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		data, err := s.read(ctx)
		answers <- answer{s.form(data), err}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		select {
		case a = <-answers:
		case <-time.After(time.Second):
			a.err = fmt.Errorf("no answer within %s", sourceTimeout)
		}
	}
	if a.err != nil {
		a.text = fmt.Appendf(a.text, "(not complete: %s)\n", redact.Line(a.err.Error()))
	}
	return a.text
}

// fit limits each entry and all together. Of an entry that is too large, the end is kept.
func fit(entries []Entry, limit int64) (kept []Entry, leftOut []string) {
	for _, e := range entries {
		room := min(limit, entryLimit)
		switch {
		case len(e.Content) == 0:
			continue
		case room < 1024:
			leftOut = append(leftOut, e.Name)
			continue
		case int64(len(e.Content)) > room:
			note := fmt.Sprintf("(%d bytes are left out here)\n", int64(len(e.Content))-room)
			e.Content = append([]byte(note), e.Content[int64(len(e.Content))-room:]...)
		}
		limit -= int64(len(e.Content))
		kept = append(kept, e)
	}
	return kept, leftOut
}

func indented(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}

// Summary is the printed text, and the first file of the archive.
func (r *Report) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n", r.Host, r.Began.UTC().Format("2006-01-02 15:04:05 UTC"))
	if len(r.Suspicions) == 0 {
		b.WriteString("\nNothing suspicious was found.\n")
	}
	for i, s := range r.Suspicions {
		fmt.Fprintf(&b, "\n%d. %s\n   why it matters: %s\n", i+1, strings.ReplaceAll(s.Saw, "\n", "\n   "), s.Why)
		if s.Fix != "" {
			fmt.Fprintf(&b, "   what to type:   %s\n", s.Fix)
		}
	}
	if len(r.SiteLogs) > 0 {
		fmt.Fprintf(&b, "\nLogs of the site's own pods are in %s: %s.\n%s.\n", siteLogs, strings.Join(r.SiteLogs, ", "), SiteLogsWarning)
	}
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(&b, "\nThe size limit left no room for: %s\n", strings.Join(r.LeftOut, ", "))
	}
	return b.String()
}

// examined has the facts from which suspicions are derived.
type examined struct {
	status *status.Status
	checks preflight.Report
	disks  []disk
	clock  clocks
	logs   map[string][]string // the last lines of the logs of components that are not healthy
	node   nodeFacts
	taken  []vip.Conflict // hosts that have a virtual address of this host
}

// examine reads what suspicions need, in parallel, each within its own time limit.
func (d *Doctor) examine(ctx context.Context, s *status.Status) (e examined) {
	e.status = s
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { e.checks = d.preflight(ctx, s) })
	wg.Go(func() { e.disks = d.readDisks() })
	wg.Go(func() { e.clock = d.readClocks(ctx) })
	wg.Go(func() { e.logs = d.readLogs(ctx, s) })
	wg.Go(func() { e.node = d.readNodeFacts(ctx, s) })
	wg.Go(func() { e.taken = d.otherHolders(ctx, s) })
	wg.Wait()
	return e
}
