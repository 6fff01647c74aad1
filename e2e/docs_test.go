//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"path"
	"regexp"
	"strings"
	"testing"

	"airlift/scripts/fixtures/docs"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestDocs runs the commands in the documentation that are for hosts, in the order
// of the pages. All pages share two hosts. The tests of cmd/bundle run the commands
// for a connected machine.
func TestDocs(t *testing.T) {
	pages, err := docs.Read("..")
	if err != nil {
		t.Fatal(err)
	}
	s := up(t, lab.Options{Name: "e2e-docs", Hosts: 2, Virtual: []netip.Addr{netip.MustParseAddr(virtual)}})
	r := &reader{site: s, values: map[string]string{"HOST": s.Hosts[0].Addr.String()}}
	left := 0
	for _, p := range pages {
		if !t.Run(path.Base(p.Path), func(t *testing.T) { left += r.follow(t, p) }) {
			diagnose(t, s)
			t.FailNow() // the next page needs the hosts
		}
	}
	if left > 0 {
		t.Logf("%d BLOCKS WERE NOT RUN, with the reasons above", left)
	}
}

// A reader runs the commands of the pages on the hosts.
type reader struct {
	site   *site.Site
	values map[string]string // values of the placeholders, from the last output that had them
	seen   strings.Builder   // all output so far
}

// follow runs a page, and returns how many of its blocks are not run.
func (r *reader) follow(t *testing.T, p docs.Page) (left int) {
	prepared := false
	for _, b := range p.Blocks {
		if b.NotBy != "" {
			t.Logf("NOT RUN: %s:%d: %s", p.Path, b.Line, b.NotBy)
			left++
		}
		if b.Lang == "text" {
			r.quoted(t, p, b)
		}
		for _, name := range b.On {
			h := r.host(name)
			if h == nil {
				continue // for a connected machine
			}
			if !prepared {
				r.prepare(t, p.Bare)
				prepared = true
			}
			if out, err := r.run(t, h, b.Script()); err != nil {
				t.Fatalf("%s:%d: on %s: %v\n%s", p.Path, b.Line, name, err, out)
			}
		}
	}
	return left
}

func (r *reader) host(name string) *lab.Host {
	for _, h := range r.site.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// prepare sets the hosts up as a page expects them: bare, or with host1 as a
// control plane.
func (r *reader) prepare(t *testing.T, bare bool) {
	t.Helper()
	first := r.site.Hosts[0]
	for _, h := range r.site.Hosts {
		run(t, h, "rm", "-f", exports)
		if bare {
			install(t, h, 0, "reset", "--force")
		}
	}
	if _, err := first.Output(t.Context(), "test", "-e", "/etc/kubernetes/admin.conf"); !bare && err != nil {
		r.learn(install(t, first, 0, "init"))
	}
}

// exports is a file with the variables that a page has exported on a host. A
// terminal also keeps them between two blocks.
const exports = "/root/.exports"

// run runs a block as an operator's shell does, up to the first command that fails.
func (r *reader) run(t *testing.T, h *lab.Host, script string) (string, error) {
	for _, name := range []string{"HOST", "TOKEN", "HASH", "KEY"} {
		word := regexp.MustCompile(`\b` + name + `\b`)
		if !word.MatchString(script) {
			continue
		}
		if r.values[name] == "" {
			return "", fmt.Errorf("no output so far has a value for %s", name)
		}
		script = word.ReplaceAllLiteralString(script, r.values[name])
	}
	if *profile != "" {
		script = initCommand.ReplaceAllString(script, "/install ${1}init --profile "+*profile+"$2")
	}
	var out bytes.Buffer
	w := io.MultiWriter(t.Output(), &out)
	err := h.Exec(t.Context(), nil, w, w, "bash", "-eux", "-o", "pipefail", "-c",
		"set +x; test ! -e "+exports+" || . "+exports+"; set -x\n"+script+"\nset +x; export -p > "+exports)
	r.seen.WriteString(out.String())
	r.learn(out.String())
	return out.String(), err
}

// initCommand is a command of a page that creates a cluster. Phases have no profile.
var initCommand = regexp.MustCompile(`(?m)/install (preflight )?init\b( +-|$)`)

var step = regexp.MustCompile(`^\[ *[0-9]+/[0-9]+\] `)

// quoted fails unless the steps that a page quotes were printed.
func (r *reader) quoted(t *testing.T, p docs.Page, b docs.Block) {
	t.Helper()
	for line := range strings.Lines(b.Text) {
		printed := line
		if *profile != "" { // which has more steps
			printed = step.ReplaceAllString(line, "")
		}
		if step.MatchString(line) && !strings.Contains(r.seen.String(), printed) {
			t.Errorf("%s:%d: no run has printed: %s", p.Path, b.Line, line)
		}
	}
}

var values = map[string]*regexp.Regexp{
	"TOKEN": regexp.MustCompile(`--token ([a-z0-9]{6}\.[a-z0-9]{16})`),
	"HASH":  regexp.MustCompile(`--discovery-token-ca-cert-hash sha256:([0-9a-f]{64})`),
	"KEY":   regexp.MustCompile(`--certificate-key ([0-9a-f]{64})\b`),
}

// learn stores the new values of the placeholders.
func (r *reader) learn(output string) {
	for line := range strings.Lines(output) {
		for name, value := range values {
			if m := value.FindStringSubmatch(line); m != nil {
				r.values[name] = m[1]
			}
		}
	}
}
