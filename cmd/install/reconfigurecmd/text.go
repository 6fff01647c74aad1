package reconfigurecmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"airlift/installer/flow/reconfigure"
	"airlift/installer/preflight"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// writePlan prints a plan for people.
func writePlan(out io.Writer, p *reconfigure.Plan) {
	if p.Empty() && len(p.Refused)+len(p.Errors)+len(p.Warnings) == 0 {
		fmt.Fprintln(out, "There is nothing to do: the nodes and the cluster have this configuration.")
		return
	}
	for _, one := range p.Refused {
		fmt.Fprintf(out, "refused: %s\n    needed: %s\n", one, one.Needed)
	}
	if len(p.Refused) > 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tROLE\tRESTARTS\tCOMMAND")
	for _, n := range p.Nodes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", n.Name, n.Role, cmp.Or(strings.Join(n.Restarts, ", "), "-"), cmp.Or(n.Command, "-"))
	}
	_ = table.Flush() // a lost output cancels the command
	if len(p.AddOns) > 0 {
		fmt.Fprintf(out, "\nThe pods of these are replaced, one by one: %s\n", strings.Join(p.AddOns, ", "))
	}
	if len(p.Marks) > 0 {
		fmt.Fprintf(out, "\nThe labels and taints of node %s change: %s\n", p.Node, strings.Join(p.Marks, ", "))
	}
	for _, c := range p.Certificates {
		fmt.Fprintf(out, "\n%s is renewed, without a restart:%s%s\n", c.File, names(" added: ", c.Added), names(" removed: ", c.Removed))
	}
	for _, c := range p.Changes {
		switch {
		case c.Removed:
			fmt.Fprintf(out, "\n%s: the file is removed\n", c.Name)
		case c.Diff == "":
			fmt.Fprintf(out, "\n%s changes: its contents are not shown\n", c.Name)
		}
	}
	for i, c := range p.Changes {
		if i == 0 {
			fmt.Fprintln(out)
		}
		progress.WriteDiff(out, fault.Printable(c.Diff))
	}
	if len(p.Warnings)+len(p.Errors) > 0 {
		fmt.Fprintln(out)
		preflight.Report{Warnings: p.Warnings, Errors: p.Errors}.Write(out)
	}
}

func names(title string, list []string) string {
	if len(list) == 0 {
		return ""
	}
	return title + strings.Join(list, ", ")
}
