package clustercmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"airlift/cmd/install/clustercmd/overview"
	"airlift/cmd/output"
	"airlift/installer/host/filesystem"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/installer/preflight"
	"airlift/installer/redact"
	"airlift/internal/documents"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// rules are flags that change what a plan has.
type rules struct {
	remove, goOn, undo bool
	pauseAfter         string
}

func (r *rules) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&r.remove, "remove", false, "also remove nodes that cluster.yaml does not have, and reset their hosts if they can be reached")
	f.BoolVar(&r.goOn, "continue", false, "go on after a pause of an upgrade")
	f.StringVar(&r.pauseAfter, "pause-after", "", "pause the upgrade after this `GROUP` of hosts in this run; the next apply without this flag goes on")
}

// change changes the rules in cluster.yaml.
func (r *rules) change(c *spec.Cluster) error {
	c.Roll.Undo = c.Roll.Undo || r.undo
	if r.pauseAfter != "" && !slices.ContainsFunc(c.Groups, func(g spec.Group) bool { return g.Name == r.pauseAfter }) {
		return fault.New(fault.Usage, "--pause-after %q: the cluster has no group with this name", r.pauseAfter).Hint("see groups in cluster.yaml")
	}
	return nil
}

// problems are reasons to change nothing.
type problems []plan.Problem

func (p problems) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, and nothing was changed:", counted(len(p), "problem"))
	for one, hosts := range overview.Shared(p, func(one plan.Problem) (string, plan.Problem) {
		host := cmp.Or(one.Host, "cluster")
		one.Host = ""
		return host, one
	}) {
		fmt.Fprintf(&b, "\n  %s: %s", strings.Join(hosts, ", "), one.What)
		if one.Why != "" {
			fmt.Fprintf(&b, ": %s", one.Why)
		}
		if one.Hint != "" {
			fmt.Fprintf(&b, "\n      hint: %s", strings.ReplaceAll(one.Hint, "\n", "\n      "))
		}
	}
	return b.String()
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// plan gathers facts and computes the plan.
func (s *opened) plan(ctx context.Context, r rules) (*plan.Plan, error) {
	if err := r.change(s.Site.Cluster); err != nil {
		return nil, err
	}
	s.Site.Display.Start()
	defer s.Site.Display.Clear()
	if err := s.Site.Gather(ctx, false); err != nil {
		return nil, err
	}
	if r.remove {
		if err := s.Site.GatherLeavers(ctx); err != nil {
			return nil, err
		}
	}
	return s.compute(ctx, r)
}

// compute returns the plan for the facts that were read. It asks hosts what kubeadm's documents change.
func (s *opened) compute(ctx context.Context, r rules) (*plan.Plan, error) {
	in, err := s.input(r)
	if err != nil {
		return nil, err
	}
	in.Changes = s.Site.Changes(ctx, plan.Questions(in))
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	p, found := plan.Make(in)
	if len(found) > 0 {
		return nil, fault.New(fault.Preflight, "%w", problems(found)).Hint("")
	}
	return p, nil
}

// input returns what the plan depends on, without the changes.
func (s *opened) input(r rules) (plan.Input, error) {
	m, err := s.file.Bundle.Manifest()
	if err != nil {
		return plan.Input{}, err
	}
	_, arch, _ := strings.Cut(m.Platform, "/")
	credentials, err := s.Site.Cluster.Registries.CredentialsDigest(s.Site.Cluster.Name)
	if err != nil {
		return plan.Input{}, err
	}
	return plan.Input{
		Spec: s.Site.Cluster, Answers: s.Site.Answers(), Version: m.KubernetesVersion, Bundle: s.file.Bundle.ID(), Arch: arch, Credentials: credentials,
		Options: plan.Options{Remove: r.remove, Skip: s.skip, Continue: r.goOn, PauseAfter: r.pauseAfter, Parallel: s.Site.Parallel},
	}, nil
}

// still fails if a plan is not what the site needs any more.
func (s *opened) still(ctx context.Context, p *plan.Plan, r rules) error {
	now, err := s.compute(ctx, r)
	if err == nil {
		err = plan.Same(p, now)
	}
	if err != nil {
		return fault.Wrap(fmt.Errorf("the site has changed while this command waited, and nothing was done: %w", err), fault.ExitCode(err), "run the same command again")
	}
	return nil
}

const planLong = `Show what apply would do, host by host, and change nothing. If kubeadm's documents change
the configuration, it also shows the differences of files and objects. The facts come from
the hosts: to read them, plan brings the installer of 20 MB to hosts that do not have it, and
removes it from hosts that are no nodes.

Notes have what was edited by hand on nodes and in the cluster, and how to keep or drop it.

With --out, the plan is also saved. 'cluster apply FILE' does exactly this plan, or fails if a
host or cluster.yaml has changed since.

Exit codes: 0 this is the plan. With --detailed-exitcode, 0 nothing to do, 5 there is
something to do. If apply could do nothing now: 6 hosts were skipped, 7 paused, 8 held, 9
waiting for a window. './install --help' lists the others.`

func newPlan(in *site) *cobra.Command {
	var r rules
	formats, file, exit := &output.Flags{}, "", output.PlanExit(false)
	cmd := &cobra.Command{
		Use:     "plan",
		Short:   "Show what apply would do",
		Long:    planLong,
		Example: "  ./install cluster plan\n  ./install cluster plan --out site.plan\n  ./install cluster plan -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			return exit.Code(in.checking().with(cmd, cmd.ErrOrStderr(), func(ctx context.Context, s *opened) error {
				defer s.Site.Discard(ctx)
				p, err := s.plan(ctx, r)
				if found := (problems)(nil); show != nil && errors.As(err, &found) {
					err = errors.Join(show(cmd.OutOrStdout(), map[string]any{"problems": found}), err)
				}
				if err != nil {
					return err
				}
				p.Notes = append(p.Notes, s.drift(ctx)...)
				return s.writePlan(cmd, p, show, file, &r)
			}))
		},
	}
	r.bind(cmd)
	cmd.Flags().StringVar(&file, "out", "", "also write the plan to this `FILE`, for 'cluster apply FILE'")
	exit.Bind(cmd.Flags())
	formats.Bind(cmd.Flags())
	return cmd
}

// command returns the command that does a plan, which may be in a file.
func (r *rules) command(file string) string {
	command := "./install cluster apply"
	if file != "" {
		command += " " + fault.Word(file)
	}
	if r.remove {
		command += " --remove"
	}
	if r.goOn {
		command += " --continue"
	}
	if r.pauseAfter != "" {
		command += " --pause-after " + fault.Word(r.pauseAfter)
	}
	return command
}

// writePlan prints a plan, and writes it to a file unless that is "". The error has the exit code for a plan that is not empty.
func (s *opened) writePlan(cmd *cobra.Command, p *plan.Plan, show output.Printer, file string, r *rules) error {
	if file != "" {
		data, err := json.MarshalIndent(p, "", "  ")
		if err == nil {
			err = filesystem.WriteOutput(file, append(data, '\n'), 0o600)
		}
		if err != nil {
			return fmt.Errorf("writing the plan to %q: %w", file, err)
		}
	}
	err := error(nil)
	if show != nil {
		err = show(cmd.OutOrStdout(), p)
	} else {
		err = s.print(cmd.OutOrStdout(), p)
	}
	switch {
	case err != nil:
		return err
	case len(p.Stages) == 0 || p.Wait != "":
		return p.Outcome()
	case show == nil:
		fmt.Fprintln(cmd.OutOrStdout(), "\nTo do it: "+r.command(file))
	}
	return output.PlanExit(true).Work()
}

func newPreflight(in *site) *cobra.Command {
	formats := &output.Flags{}
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check all hosts, and change nothing",
		Long: `Check all hosts, and change nothing: whether they can be reached, fit to each other and to
cluster.yaml, and, for hosts that become nodes, with all checks of init and join. All
problems are in one table. A host that does not answer hides no problem of others.

Exit codes: 0 all checks passed, perhaps with warnings; 3 a check failed.`,
		Example: "  ./install cluster preflight\n  ./install cluster preflight -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			return in.checking().with(cmd, cmd.ErrOrStderr(), func(ctx context.Context, s *opened) error {
				return s.printPreflight(ctx, cmd.OutOrStdout(), show)
			})
		},
	}
	formats.Bind(cmd.Flags())
	return cmd
}

func (s *opened) printPreflight(ctx context.Context, out io.Writer, show output.Printer) error {
	defer s.Site.Discard(ctx)
	p, err := s.plan(ctx, rules{})
	var unplanned problems
	_ = errors.As(err, &unplanned)
	found, err := s.preflight(ctx, p, err)
	hosts, site := unplanned.findings()
	if err != nil && ctx.Err() == nil && len(unplanned) > 0 {
		site = append(site, run.Finding{Host: "cluster", Message: "the hosts were not checked: " + err.Error(), Fix: fault.Hint(err)})
	} else if err != nil {
		return err
	}
	found = slices.Concat(hosts, found, site)
	if show != nil {
		err = show(out, map[string]any{"findings": append([]run.Finding{}, found...)})
	} else {
		err = writeFindings(out, found)
	}
	if err == nil {
		err = failed(found)
	}
	if err == nil && show == nil {
		_, err = fmt.Fprintln(out, "All preflight checks passed.")
	}
	return err
}

// preflight checks the hosts that the plan makes nodes. Problems because of which there is no plan do not hide what these hosts find.
func (s *opened) preflight(ctx context.Context, p *plan.Plan, err error) ([]run.Finding, error) {
	if errors.As(err, new(problems)) {
		in, inputErr := s.input(rules{})
		p, err = plan.Entries(in), inputErr
	}
	if err != nil {
		return nil, err
	}
	s.Site.Display.Start()
	defer s.Site.Display.Clear()
	return s.Site.Preflight(ctx, p)
}

// findings returns problems as findings: first the problems of hosts, then the problems of the whole site.
func (p problems) findings() (hosts, site []run.Finding) {
	for _, one := range p {
		f := run.Finding{Host: one.Host, Message: one.What, Fix: one.Hint}
		if one.Why != "" {
			f.Message += ": " + one.Why
		}
		if one.Host == "" {
			f.Host = "cluster"
			site = append(site, f)
		} else {
			hosts = append(hosts, f)
		}
	}
	return hosts, site
}

// writeFindings prints findings as a table.
func writeFindings(out io.Writer, found []run.Finding) error {
	found = slices.DeleteFunc(slices.Clone(found), func(f run.Finding) bool { return f.Minor })
	if len(found) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\t\tCHECK\tPROBLEM")
	for f, hosts := range overview.Shared(found, func(f run.Finding) (host string, of run.Finding) { host, f.Host = f.Host, ""; return host, f }) {
		names := strings.Join(hosts[:min(len(hosts), 3)], ", ")
		if more := len(hosts) - 3; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		kind := "error"
		if f.Warning {
			kind = "warning"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", names, kind, cmp.Or(f.Name, "-"), strings.ReplaceAll(f.Message, "\n", " "))
		if f.Fix != "" {
			fmt.Fprintf(w, "\t\t\thint: %s\n", strings.ReplaceAll(f.Fix, "\n", " "))
		}
	}
	return w.Flush()
}

// failed returns an error if a finding is one. The table has the details.
func failed(found []run.Finding) error {
	errs := slices.DeleteFunc(slices.Clone(found), func(f run.Finding) bool { return f.Warning })
	if len(errs) == 0 {
		return nil
	}
	hint, ignorable := "", slices.IndexFunc(errs, func(f run.Finding) bool { return f.Name != "" && preflight.Ignorable(f.Name) })
	if ignorable >= 0 {
		hint = "to ignore an error that you know to be harmless, add nodeRegistration.ignorePreflightErrors: [" + errs[ignorable].Name + "] to kubeadm's document in cluster.yaml"
	}
	return fault.New(fault.Preflight, "preflight checks failed: %s must be solved first, and nothing was changed", counted(len(errs), "problem")).Hint(hint)
}

const applyLong = `Make the cluster what cluster.yaml and this file say. Apply installs the first control plane,
joins the others and the workers, upgrades them to the version of this file, changes the
endpoint, kubeadm's configuration, labels and taints, and with --remove removes what the
file no longer has.

With PLAN, a file of 'cluster plan --out', it does exactly that plan, or fails if a host has
changed since.

First, it checks all hosts. If a host cannot be reached or a check fails, nothing changes
on any host. Then it shows the plan and asks for confirmation. A host that fails stops what
has not begun.

An upgrade first brings all images to the hosts that it upgrades. Then the control planes
follow one by one, then the workers by the rules of their groups in cluster.yaml. A pause
holds back the upgrades of the groups after it, and nothing else. Apply waits for the window
of a group, so it may run for long. It stops if a node fails, and never begins the next one.
The next run begins with the checks of the last hosts, and changes no other host before.
Another configuration goes to one host after the other, control planes first.

It is safe to run it again, from another machine too: it finishes what an interrupted run
left. Ctrl-C stops the commands on the hosts between two changes.

At the end it reads all hosts again. Exit codes: 0 the cluster matches the file; 6 it does,
but for hosts that were skipped; 7 paused, go on with --continue; 8 held, until you change
what is named; 9 waiting, the same command has more to do. If there are several: 7, 9, 8, 6.
'./install --help' lists the others.`

func newApply(in *site) *cobra.Command {
	var r rules
	yes := false
	cmd := &cobra.Command{
		Use:   "apply [PLAN]",
		Short: "Make the cluster match cluster.yaml",
		Long:  applyLong,
		Example: "  ./install cluster apply\n  ./install cluster apply --yes --skip worker7\n  ./install cluster apply site.plan\n" +
			"  ./newer cluster apply --pause-after canary --undo\n  ./newer cluster apply --continue",
		Args: output.AtMostOneArg("plan"),
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, err := readPlan(strings.Join(args, ""))
			if err != nil {
				return err
			}
			return in.checking().record().with(cmd, cmd.OutOrStdout(), func(ctx context.Context, s *opened) error {
				return s.apply(ctx, cmd, r, saved, yes)
			})
		},
	}
	r.bind(cmd)
	cmd.Flags().BoolVar(&r.undo, "undo", false, "undo the upgrade of a node that fails")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// readPlan reads a saved plan; nil without a file.
func readPlan(file string) (*plan.Plan, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err == nil {
		data, err = documents.ReadOne(data)
	}
	p := &plan.Plan{}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(p)
	}
	if err == nil {
		return p, nil
	}
	return nil, fault.New(fault.Usage, "reading the plan %q: %w", file, err).Hint("write one: ./install cluster plan --out site.plan; for another description of the cluster, use -f FILE")
}

func (s *opened) apply(ctx context.Context, cmd *cobra.Command, r rules, saved *plan.Plan, yes bool) error {
	p, err := s.checked(ctx, cmd, r, saved)
	if err == nil && len(p.Stages) > 0 && !yes {
		err = confirm(cmd, "Do this? [y/N]", "", "answer with y, or run it with --yes")
	}
	if err != nil || len(p.Stages) == 0 {
		s.Site.Discard(ctx)
	} else {
		p, err = s.execute(ctx, p, r)
	}
	if err == nil {
		err = p.Outcome()
	}
	if err == nil {
		fmt.Fprintln(cmd.OutOrStdout(), "The cluster matches the file. To see it: ./install cluster status\nTo use kubectl on this machine: ./install cluster kubeconfig --merge")
	}
	return err
}

// execute executes a plan, and returns the plan that is left to do.
func (s *opened) execute(ctx context.Context, p *plan.Plan, r rules) (*plan.Plan, error) {
	s.Site.Display.Start()
	defer s.Site.Display.Stop()
	if err := s.Site.Execute(ctx, p, func() error { return s.still(ctx, p, r) }); err != nil {
		return nil, fault.Wrap(err, fault.ExitCode(err), cmp.Or(fault.Hint(err), "solve the problem, and run the same command again: it continues"))
	}
	r.goOn = r.goOn && !p.Pauses() // --continue is for the groups before this pause
	left, err := s.compute(ctx, r)
	if err != nil && ctx.Err() == nil {
		err = fault.New(fault.Failure, "the plan was done, and it is unknown whether the cluster matches the file: %w", err).Hint("solve the problems, and run the same command again")
	}
	return left, err
}

// checked returns the plan after all checks, and prints it.
func (s *opened) checked(ctx context.Context, cmd *cobra.Command, r rules, saved *plan.Plan) (*plan.Plan, error) {
	p, err := s.plan(ctx, r)
	if err == nil && saved != nil {
		err = plan.Same(saved, p)
	}
	found, checkErr := s.preflight(ctx, p, err)
	if checkErr == nil {
		checkErr = errors.Join(writeFindings(cmd.OutOrStdout(), found), failed(found))
	}
	err = cmp.Or(err, checkErr)
	if err == nil {
		err = s.print(cmd.OutOrStdout(), p)
	}
	return p, err
}

// print prints a plan for people. Hosts have hidden the secrets in what changes there; what has the form of one is hidden once more.
func (s *opened) print(out io.Writer, p *plan.Plan) error {
	s.log.text("", p.Text(0, false))
	_, err := progress.Raw(out).Write(redact.Log([]byte(p.Text(progress.Columns(out), progress.HasColors(out)))))
	return err
}
