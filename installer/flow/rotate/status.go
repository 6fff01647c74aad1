package rotate

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"airlift/installer/cluster"
	"airlift/installer/cluster/rotation"
	"airlift/internal/fault"
)

// A Status is the state of the rotation of the CAs.
type Status struct {
	Rotating bool            `json:"rotating"`
	Stage    string          `json:"stage,omitempty"`
	NextCA   string          `json:"nextCAHash,omitempty"`
	Nodes    []rotation.Node `json:"nodes,omitempty"`
}

// ReadStatus reads the state from the cluster.
func ReadStatus(ctx context.Context, kubeconfig string) (*Status, error) {
	c, err := cluster.Load(kubeconfig, "")
	if err != nil {
		return nil, fault.Wrap(err, fault.Failure, "run it on a control plane as root, or set --kubeconfig")
	}
	state, err := rotation.Read(ctx, c.API)
	if err != nil || state == nil {
		return &Status{}, err
	}
	nodes, err := rotation.Nodes(ctx, c.API, state.ID)
	return &Status{Rotating: true, Stage: state.Stage, NextCA: state.ID, Nodes: nodes}, err
}

// Write prints the state, and what to run next.
func (s *Status) Write(out io.Writer) error {
	if !s.Rotating {
		fmt.Fprintln(out, "no rotation of the CAs is in progress")
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tROLE\tREADY\tSTAGE")
	for _, n := range s.Nodes {
		role, stage := "worker", "-"
		if n.ControlPlane {
			role = "control plane"
		}
		if n.Stage != "" {
			stage = n.Stage
		}
		fmt.Fprintf(w, "%s\t%s\t%t\t%s\n", n.Name, role, n.Ready, stage)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe cluster is at the stage %q. The new CA: %s\n%s", s.Stage, s.NextCA, nextStep(s.Stage, "KEY", s.Nodes))
	return nil
}
