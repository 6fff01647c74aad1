package clustercmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"airlift/cmd/output"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/installer/status"
	"airlift/internal/fault"
)

// A siteStatus is the document of status. Fields are only added.
type siteStatus struct {
	Name    string       `json:"name"`
	Healthy bool         `json:"healthy"`
	Hosts   []hostStatus `json:"hosts"`
	// Others are nodes of the cluster that cluster.yaml does not have.
	Others []facts.ClusterNode `json:"others"`

	gate *facts.Gate // of the cluster; it is in the facts of the control planes
}

type hostStatus struct {
	Name     string        `json:"name"`
	Role     string        `json:"role"`
	Group    string        `json:"group"`
	Error    string        `json:"error,omitempty"` // why it has no facts
	Hint     string        `json:"hint,omitempty"`
	Facts    *facts.Facts  `json:"facts,omitempty"`
	Problems []hostProblem `json:"problems"`
	Warnings []hostProblem `json:"warnings"`
	// Drift is what was edited by hand on the host and in the cluster.
	Drift []status.Drift `json:"drift,omitempty"`

	node *facts.ClusterNode
}

// A hostProblem is one of 'install status'.
type hostProblem struct {
	Part    string `json:"part"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

func newStatus(in *site) *cobra.Command {
	formats := &output.Flags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of all hosts on one screen",
		Long: `Show the state of all hosts on one screen: the node, its version, the last command that
changed the host, what is wrong with it and what was edited by hand, with the command to
type.

It changes nothing, and also works while the API server is down and for hosts that do not
answer: then it shows what the other hosts know.

Exit codes: 0 nothing is wrong, perhaps with warnings; 1 something is wrong, or a host does
not answer.`,
		Example: "  ./install cluster status\n  ./install cluster status -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			return in.gathered(cmd, cmd.ErrOrStderr(), nil, func(ctx context.Context, s *opened) error {
				state := s.status(ctx)
				s.Site.Display.Clear()
				if show != nil {
					err = show(cmd.OutOrStdout(), state)
				} else {
					err = state.write(cmd.OutOrStdout())
				}
				if err == nil && !state.Healthy {
					err = fault.New(fault.Failure, "the cluster %s has problems", state.Name).Hint("for a remote engineer: ./install cluster doctor")
				}
				return err
			})
		},
	}
	formats.Bind(cmd.Flags())
	return cmd
}

// status reads the state of all hosts.
func (s *opened) status(ctx context.Context) *siteStatus {
	state := &siteStatus{Name: s.Site.Cluster.Name, Healthy: true, Others: []facts.ClusterNode{}}
	problems := s.problems(ctx)
	for _, h := range s.Site.Hosts() {
		found := problems[h.Name]
		one := hostStatus{Name: h.Name, Role: h.Role, Group: h.Group, Facts: h.Facts, Problems: found.Problems, Warnings: found.Warnings, Drift: found.Drift}
		if h.Err != nil {
			one.Error, one.Hint = plan.Reason(h.Name, h.Err), fault.Hint(h.Err)
		}
		state.Hosts = append(state.Hosts, one)
	}
	state.fillNodes()
	return state
}

type nodeProblems struct {
	Problems, Warnings []hostProblem
	Drift              []status.Drift
	Unknown            map[string]string
}

// driftPart is the part of 'install status' that compares a node with the stored configuration.
const driftPart = "drift"

// drift returns what was edited by hand on the hosts and in the cluster, or why that is not known, a line each.
func (s *opened) drift(ctx context.Context) (notes []string) {
	s.Site.Display.Start()
	defer s.Site.Display.Clear()
	found := s.problems(ctx)
	var all []problemOf
	for _, h := range s.Site.Hosts() {
		p := found[h.Name]
		for _, w := range p.Warnings {
			if w.Part == driftPart {
				all = append(all, problemOf{h.Name, w})
			}
		}
		if why := p.Unknown[driftPart]; why != "" {
			all = append(all, problemOf{h.Name, hostProblem{Part: driftPart, Message: "it is not known what was edited by hand: " + why}})
		}
	}
	for p, hosts := range shared(all, func(p problemOf) (string, hostProblem) { return p.host, p.hostProblem }) {
		note := strings.Join(hosts, ", ") + ": " + p.Message
		if p.Fix != "" {
			note += "; " + p.Fix
		}
		notes = append(notes, note)
	}
	return notes
}

// problems reads what is wrong with the hosts that are nodes.
func (s *opened) problems(ctx context.Context) map[string]nodeProblems {
	var nodes []*run.Host
	for _, h := range s.Site.Hosts() {
		if h.Err == nil && h.Facts.Node != nil {
			nodes = append(nodes, h)
		}
	}
	all, _ := run.Ask(ctx, s.Site, "read status", nodes, func(ctx context.Context, h *run.Host) (nodeProblems, error) { return readProblems(ctx, h), nil })
	return all
}

// readProblems reads what is wrong with a node.
func readProblems(ctx context.Context, h *run.Host) (p nodeProblems) {
	out, err := h.Installer(ctx, "status", "-o", "json")
	if decodeErr := json.Unmarshal(out, &p); decodeErr != nil {
		err = cmp.Or(err, decodeErr)
		p.Problems = []hostProblem{{Part: "status", Message: err.Error(), Fix: fault.Hint(err)}}
	}
	return p
}

// fillNodes finds the Node of each host, and the nodes that no host has.
func (s *siteStatus) fillNodes() {
	var c *facts.Cluster
	for _, h := range s.Hosts {
		if c == nil && h.Facts != nil && h.Role == spec.ControlPlane { // what a worker reports of others is a claim
			c = h.Facts.Cluster
		}
	}
	known := map[string]*facts.ClusterNode{}
	if c != nil {
		for i := range c.Nodes {
			known[c.Nodes[i].Name] = &c.Nodes[i]
		}
	}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		h.node = known[h.Name]
		delete(known, h.Name)
		if h.Error != "" || h.Facts.Node == nil || len(h.Problems) > 0 || h.node != nil && !h.node.Ready {
			s.Healthy = false
		}
	}
	if c == nil {
		return
	}
	s.gate = c.Gate
	for _, n := range c.Nodes {
		if known[n.Name] != nil {
			s.Others = append(s.Others, n)
		}
	}
}

func (s *siteStatus) write(out io.Writer) error {
	fmt.Fprintf(out, "cluster %s\n\n", s.Name)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tROLE\tGROUP\tSTATE\tVERSION\tLAST COMMAND\tPROBLEMS")
	for _, h := range s.Hosts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Name, h.Role, h.Group, h.state(), h.version(), h.last(), h.count())
	}
	for _, n := range s.Others {
		fmt.Fprintf(w, "%s\t-\t-\tnot in cluster.yaml\t%s\t-\t-\n", n.Name, n.Version)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if g := s.gate; g != nil {
		fmt.Fprintf(out, "\nThe last batch of a roll (%s: %s) has not passed its checks. The next apply begins with them.\n", g.Stage, strings.Join(g.Hosts, ", "))
	}
	var all []problemOf
	for _, h := range s.Hosts {
		h.explain(out)
		for _, p := range h.Problems {
			all = append(all, problemOf{h.Name, p})
		}
		for _, p := range h.Warnings {
			if p.Part == driftPart {
				all = append(all, problemOf{h.Name, p})
			}
		}
	}
	// One cause, such as an API server that is down, is a problem of many hosts.
	for p, hosts := range shared(all, func(p problemOf) (string, hostProblem) { return p.host, p.hostProblem }) {
		fmt.Fprintf(out, "\n%s: %s: %s\n", strings.Join(hosts, ", "), p.Part, p.Message)
		if p.Fix != "" {
			fmt.Fprintf(out, "    hint: %s\n", p.Fix)
		}
	}
	return nil
}

type problemOf struct {
	host string
	hostProblem
}

// explain prints why the facts of a host are not known.
func (h *hostStatus) explain(out io.Writer) {
	if h.Error != "" {
		fmt.Fprintf(out, "\n%s does not answer: %s\n", h.Name, h.Error)
		if h.Hint != "" {
			fmt.Fprintf(out, "    hint: %s\n", h.Hint)
		}
	}
	if h.Facts != nil && h.Facts.Unknown["node"] != "" {
		fmt.Fprintf(out, "\n%s: it is unknown whether this host is a node: %s\n    hint: on that host: ./install status\n", h.Name, h.Facts.Unknown["node"])
	}
}

// state is the state of a host in a word or two.
func (h *hostStatus) state() string {
	switch {
	case h.Error != "":
		return "no answer"
	case h.Facts.Node == nil && h.Facts.Unknown["node"] != "":
		return "unknown"
	case h.Facts.Node == nil && h.Facts.Unfinished != "":
		return "unfinished " + h.Facts.Unfinished
	case h.Facts.Node == nil:
		return "no node"
	case h.node == nil && !h.Facts.Node.KubeletRunning:
		return "kubelet is off"
	case h.node == nil:
		return "kubelet runs"
	case !h.node.Ready:
		return "NotReady"
	case h.node.Unschedulable:
		return "Ready, cordoned"
	}
	return "Ready"
}

func (h *hostStatus) version() string {
	if h.Facts == nil || h.Facts.Node == nil {
		return "-"
	}
	return h.Facts.Node.Version
}

// last is the last command that changed the host.
func (h *hostStatus) last() string {
	if h.Facts == nil || len(h.Facts.Runs) == 0 {
		return "-"
	}
	r := h.Facts.Runs[len(h.Facts.Runs)-1]
	text := r.Command + ", " + r.Began.Local().Format("2006-01-02 15:04")
	if r.ExitCode == nil {
		return text + ", unfinished"
	}
	if *r.ExitCode != 0 {
		return fmt.Sprintf("%s, failed (%d)", text, *r.ExitCode)
	}
	return text
}

func (h *hostStatus) count() string {
	var parts []string
	if n := len(h.Problems); n > 0 {
		parts = append(parts, counted(n, "problem"))
	}
	if n := len(h.Warnings); n > 0 {
		parts = append(parts, counted(n, "warning"))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}
