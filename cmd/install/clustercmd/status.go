package clustercmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"airlift/cmd/install/clustercmd/overview"
	"airlift/cmd/output"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/run"
	"airlift/installer/status"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

func newStatus(in *site) *cobra.Command {
	formats, watch := &output.Flags{}, false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of all hosts on one screen",
		Long: `Show the state of all hosts on one screen: control planes and workers, their versions, who
has the virtual address and leads etcd, the next certificate that expires, the last backup,
what is down and why, and what was edited by hand, with the command to type. A line with !
needs attention.

It changes nothing, and also works while the API server is down and for hosts that do not
answer: then it shows what the other hosts know. To mail the same with more details, see
'cluster report'.

With --watch it reads each host again every 5 seconds: on a terminal it redraws the screen,
elsewhere it prints a line for each change, and with -o a document. A host that does not
answer delays no other host. Ctrl-C ends it, with exit code 0.

Exit codes: 0 nothing is wrong, perhaps with warnings; 1 something is wrong, or a host does
not answer.`,
		Example: "  ./install cluster status\n  ./install cluster status --watch\n  ./install cluster status -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			err = in.gathered(cmd, cmd.ErrOrStderr(), nil, func(ctx context.Context, s *opened) error {
				state := s.status(ctx)
				s.Site.Display.Clear()
				if watch {
					return s.watch(ctx, newView(cmd, show), state)
				}
				if show != nil {
					err = show(cmd.OutOrStdout(), state)
				} else {
					_, _, colors := screen(cmd.OutOrStdout())
					err = state.Write(progress.Raw(cmd.OutOrStdout()), colors)
				}
				if err == nil && !state.Healthy {
					err = fault.New(fault.Failure, "the cluster %s has problems", state.Name).Hint("for a remote engineer: ./install cluster doctor")
				}
				return err
			})
			if watch && cmd.Context().Err() != nil { // it ends no other way
				return nil
			}
			return err
		},
	}
	formats.Bind(cmd.Flags())
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show changes until Ctrl-C")
	return cmd
}

// status reads the state of all hosts.
func (s *opened) status(ctx context.Context) *overview.Site {
	state := &overview.Site{Name: s.Site.Cluster.Name}
	statuses := s.statuses(ctx)
	for _, h := range s.Site.Hosts() {
		state.Hosts = append(state.Hosts, hostState(h, statuses[h.Name]))
	}
	state.Complete()
	return state
}

// hostState returns the state of a host with what 'install status' printed there, if it did.
func hostState(h *run.Host, printed *status.Status) overview.Host {
	one := overview.Host{Name: h.Name, Role: h.Role, Group: h.Group, Address: h.SSH.Address, Facts: h.Facts, Status: printed}
	if printed != nil {
		one.Problems, one.Warnings, one.Drift = printed.Problems, printed.Warnings, printed.Drift
	}
	if h.Err != nil {
		one.Error, one.Hint = plan.Reason(h.Name, h.Err), fault.Hint(h.Err)
	}
	return one
}

// statuses reads 'install status' of the hosts that are nodes.
func (s *opened) statuses(ctx context.Context) map[string]*status.Status {
	var nodes []*run.Host
	for _, h := range s.Site.Hosts() {
		if h.Err == nil && h.Facts.Node != nil {
			nodes = append(nodes, h)
		}
	}
	all, _ := run.Ask(ctx, s.Site, "read status", nodes, func(ctx context.Context, h *run.Host) (*status.Status, error) { return readStatus(ctx, h), nil })
	return all
}

// readStatus reads what 'install status' prints on a node.
func readStatus(ctx context.Context, h *run.Host) *status.Status {
	p := &status.Status{}
	out, err := h.Installer(ctx, "status", "-o", "json")
	if decodeErr := json.Unmarshal(out, p); decodeErr != nil {
		err = cmp.Or(err, decodeErr)
		p.Problems = []status.Problem{{Part: "status", Message: err.Error(), Fix: fault.Hint(err)}}
	}
	return p
}

// driftPart is the part of 'install status' that compares a node with the stored configuration.
const driftPart = "drift"

// drift returns what was edited by hand on the hosts and in the cluster, or why that is not known, a line each.
func (s *opened) drift(ctx context.Context) (notes []string) {
	s.Site.Display.Start()
	defer s.Site.Display.Clear()
	found := s.statuses(ctx)
	var all []problemOf
	for _, h := range s.Site.Hosts() {
		p := found[h.Name]
		if p == nil {
			continue
		}
		for _, w := range p.Warnings {
			if w.Part == driftPart {
				all = append(all, problemOf{h.Name, w})
			}
		}
		if why := p.Unknown[driftPart]; why != "" {
			all = append(all, problemOf{h.Name, status.Problem{Part: driftPart, Message: "it is not known what was edited by hand: " + why}})
		}
	}
	for p, hosts := range overview.Shared(all, func(p problemOf) (string, status.Problem) { return p.host, p.Problem }) {
		note := strings.Join(hosts, ", ") + ": " + p.Message
		if p.Fix != "" {
			note += "; " + p.Fix
		}
		notes = append(notes, note)
	}
	return notes
}

type problemOf struct {
	host string
	status.Problem
}

// watchInterval is the time between two looks at a host, and lookTime how long one may take.
var watchInterval, lookTime = 5 * time.Second, time.Minute

// A look is the state of a host at some time.
type look struct {
	place int // in overview.Site.Hosts
	host  overview.Host
}

// watch shows changes until ctx ends, which is no error. Each host is read by itself.
func (s *opened) watch(ctx context.Context, v *view, state *overview.Site) error {
	if err := v.begin(state); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looks := make(chan look)
	for i, h := range s.Site.Hosts() {
		wg.Go(func() { follow(ctx, h, func(now overview.Host) { send(ctx, looks, look{i, now}) }) })
	}
	redraw := time.NewTicker(time.Second) // the screen may have another size
	defer redraw.Stop()
	defer func() { v.end(state) }()
	for {
		before := *state
		select {
		case <-ctx.Done():
			return nil
		case <-redraw.C:
			v.redraw(state)
		case l := <-looks:
			next := &overview.Site{Name: state.Name, Hosts: append([]overview.Host{}, before.Hosts...)}
			next.Hosts[l.place] = l.host
			next.Complete()
			if err := v.show(state, next); err != nil {
				return err
			}
			state = next
		}
	}
}

func send[T any](ctx context.Context, to chan<- T, value T) {
	select {
	case to <- value:
	case <-ctx.Done():
	}
}

// follow reads a host again and again.
func follow(ctx context.Context, h *run.Host, found func(overview.Host)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchInterval):
		}
		limited, cancel := context.WithTimeout(ctx, lookTime)
		h.Refresh(limited)
		var printed *status.Status
		if h.Err == nil && h.Facts.Node != nil {
			printed = readStatus(limited, h)
		}
		cancel()
		if ctx.Err() == nil {
			found(hostState(h, printed))
		}
	}
}

// A view shows a site that changes: on the whole screen of a terminal, in lines, or in documents.
type view struct {
	out      io.Writer
	screen   io.Writer                  // nil if there is none
	size     func() (width, height int) // of the screen
	colors   bool
	document output.Printer // nil for people
}

// Sequences of ECMA-48 and xterm: the other screen of the terminal, and the place of the cursor.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l"
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	lineEnd     = "\x1b[K\n"
	clearRest   = "\x1b[J"
)

func newView(cmd *cobra.Command, show output.Printer) *view {
	v := &view{out: cmd.OutOrStdout(), document: show}
	if width, _, colors := screen(v.out); width > 0 && show == nil {
		v.screen, v.colors = progress.Raw(v.out), colors
		v.size = func() (int, int) { width, height, _ := screen(v.out); return width, height }
	}
	return v
}

// screen returns the size of the terminal that an output is, or zeros, and whether it shows colors.
func screen(out io.Writer) (width, height int, colors bool) {
	f, ok := out.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	return width, height, os.Getenv("NO_COLOR") == ""
}

func (v *view) begin(state *overview.Site) error {
	switch {
	case v.document != nil:
		return v.document(v.out, state)
	case v.screen == nil:
		return state.Write(v.out, false)
	}
	_, err := io.WriteString(v.screen, otherScreen)
	v.redraw(state)
	return err
}

// redraw draws the screen. A drawing is one write, so that it does not flicker.
func (v *view) redraw(state *overview.Site) {
	if v.screen == nil {
		return
	}
	width, height := v.size()
	now := time.Now()
	text := state.Screen(now, width-1, height-2, v.colors) + "\n" + now.Format(time.TimeOnly) + ", every 5 s; Ctrl-C ends"
	_, _ = io.WriteString(v.screen, home+strings.ReplaceAll(text, "\n", lineEnd)+"\x1b[K"+clearRest) // a lost output cancels the command
}

// show shows what changed.
func (v *view) show(before, state *overview.Site) error {
	changes := state.Changes(before)
	switch {
	case v.screen != nil:
		v.redraw(state)
	case v.document != nil && len(changes) > 0:
		return v.document(v.out, state)
	case v.document == nil:
		for _, line := range changes {
			if _, err := fmt.Fprintf(v.out, "%s %s\n", time.Now().Format(time.DateTime), strings.ReplaceAll(line, "\n", " ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// end leaves the last state on the terminal.
func (v *view) end(state *overview.Site) {
	if v.screen != nil {
		_, _ = io.WriteString(v.screen, mainScreen)
		_ = state.Write(v.screen, v.colors)
	}
}
