// Package clustercmd has the commands for a cluster of several hosts, which are described in one file and reached by SSH.
package clustercmd

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"airlift/bundle"
	"airlift/cmd/install/clustercmd/hostcmd"
	"airlift/cmd/output"
	"airlift/installer/configfile"
	"airlift/installer/multihost/live"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/remote"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

const clusterLong = `Install, upgrade and look after a cluster of several hosts, from one description: cluster.yaml.

Run it on any Linux machine that reaches the hosts by SSH, also on one of them. There, it
needs no root. The hosts need only sshd, a shell, and a user who is root or may use sudo.
The first control plane gets this file once, and serves it to the others.

What was done is read from the hosts. So each apply continues an earlier one, also one that
was killed, and from another machine. This machine keeps only ~/.ssh/known_hosts and the logs
of the last runs, in ~/.local/state/airlift/logs.

    ./install cluster example > cluster.yaml    # and edit it
    ./install cluster validate
    ./install cluster plan
    ./install cluster apply
    ./install cluster kubeconfig --merge

Exit codes: as of the other commands, and for what is no failure: 6 done, but for hosts that
were skipped with --skip; of apply also: 7 paused, go on with apply --continue; 8 held, until
you change what is named; 9 waiting, the same command has more to do. If there are several:
7, 9, 8, 6. Plans exit with 0; with --detailed-exitcode, 5 there is something to do, or 6 to 9.`

// New returns the command cluster. open opens the file of this process.
func New(open func() (*bundle.File, error)) *cobra.Command {
	return newCommand(&site{open: open, dial: dial})
}

// dial returns connections by SSH, with the questions on the terminal.
func dial(display *live.Display) dialer {
	return remote.NewDialer(terminal(display))
}

func newCommand(in *site) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Install, upgrade and look after a cluster of several hosts, by SSH",
		Long:  clusterLong,
	}
	f := cmd.PersistentFlags()
	f.StringVarP(&in.file, "file", "f", spec.DefaultFile, "the `FILE` that describes the cluster")
	f.StringSliceVar(&in.skip, "skip", nil, "leave this `HOST` alone, for example because it is off (repeatable)")
	f.IntVar(&in.parallel, "parallel", defaultParallel, "how many hosts are worked on at once")
	cmd.AddCommand(newExample(), newConvert(in), newValidate(in), newPreflight(in), newPlan(in), newApply(in), newStatus(in), newAudit(in), newTest(in), newReport(in), newDoctor(in), newImages(in), newCerts(in), newBackup(in), newKubeconfig(in), newReset(in), hostcmd.New())
	return cmd
}

// sharedFlags are the flags of all commands that read cluster.yaml.
var sharedFlags = []string{"file", "skip", "parallel"}

// defaultParallel suits sshd's MaxStartups of 10 on a jump host.
const defaultParallel = 10

func newExample() *cobra.Command {
	schema := false
	cmd := &cobra.Command{
		Use:   "example",
		Short: "Print a commented cluster.yaml",
		Long: `Print a cluster.yaml with comments on each field. It describes three control planes and two
workers: change the names and addresses, and remove what you do not need.

With --schema, print the JSON schema of the file. The first line of the example names it for
editors with a YAML language server: they complete fields and mark what is wrong.`,
		Example: "  ./install cluster example > cluster.yaml\n  ./install cluster example --schema > cluster.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := noEffect(cmd, "this command reads no cluster.yaml and no host", "./install cluster example > cluster.yaml", sharedFlags...); err != nil {
				return err
			}
			out := output.Verbatim(cmd.OutOrStdout())
			if !schema {
				_, err := io.WriteString(out, spec.Example())
				return err
			}
			text, err := spec.Schema()
			if err != nil {
				return err
			}
			_, err = out.Write(text)
			return err
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of cluster.yaml, for editors")
	return cmd
}

// A dialer connects to hosts.
type dialer interface {
	run.Dialer
	Close() error
}

// A site has the flags that the commands share, and what they open.
type site struct {
	open     func() (*bundle.File, error)
	dial     func(*live.Display) dialer
	file     string
	skip     []string
	parallel int
	strict   bool // values for hosts are checked as by cluster validate
	recorded bool // what is done is recorded in a log
}

// checking returns the site for commands that bring the values of cluster.yaml to hosts, or show what that would do.
func (in *site) checking() *site {
	strict := *in
	strict.strict = true
	return &strict
}

// An opened is a site whose hosts can be reached.
type opened struct {
	Site   *run.Site
	file   *run.File
	dialer dialer
	skip   []string
	log    *logFile // nil: nothing is recorded
}

// record returns the site for a command that changes hosts: what it does is recorded in a log.
func (in *site) record() *site {
	in.recorded = true
	return in
}

// with reads cluster.yaml, opens this file, and runs do. Progress goes to out.
func (in *site) with(cmd *cobra.Command, out io.Writer, do func(ctx context.Context, s *opened) error) (err error) {
	s, err := in.read(cmd, out)
	if err != nil {
		return err
	}
	defer func() {
		s.close()
		s.log.end(out, err)
	}()
	if err := do(cmd.Context(), s); err != nil {
		return err
	}
	if len(in.skip) > 0 {
		return fault.New(fault.Skipped, "%s", strings.Join(slices.Compact(slices.Sorted(slices.Values(in.skip))), ", ")).Hint(plan.SkippedHint)
	}
	return nil
}

// gathered is with for commands that keep the installers of the hosts. After before, which may be nil, it connects to them; at its end,
// it removes what it brought.
func (in *site) gathered(cmd *cobra.Command, out io.Writer, before func(s *opened) error, do func(ctx context.Context, s *opened) error) error {
	return in.with(cmd, out, func(ctx context.Context, s *opened) error {
		if before != nil {
			if err := before(s); err != nil {
				return err
			}
		}
		s.Site.Display.Start()
		defer s.Site.Discard(ctx)
		if err := s.Site.Gather(ctx, true); err != nil {
			return err
		}
		return do(ctx, s)
	})
}

// keep lets the commands of cluster that texts name have the flags with which this one was started.
func (in *site) keep(cmd *cobra.Command) {
	flags := ""
	if cmd.Flags().Changed("file") {
		flags += " -f " + fault.Word(in.file)
	}
	for _, name := range in.skip {
		flags += " --skip " + name
	}
	if strings.ContainsAny(flags, `"\`) { // in JSON, they would have to be quoted
		return
	}
	cluster := cmd
	for cluster.Name() != "cluster" {
		cluster = cluster.Parent()
	}
	var commands []string
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if add(c); !c.HasSubCommands() && c.Name() != "example" {
				commands = append(commands, output.Written+" cluster"+strings.TrimPrefix(c.CommandPath(), cluster.CommandPath()))
			}
		}
	}
	add(cluster)
	output.Keep(cmd.OutOrStdout(), commands, flags)
	output.Keep(cmd.ErrOrStderr(), commands, flags)
}

// described reads cluster.yaml.
func (in *site) described(b *bundle.File) (*spec.Cluster, error) {
	if !in.strict {
		return spec.Read(in.file)
	}
	m, err := b.Manifest()
	if err != nil {
		return nil, err
	}
	return spec.Validate(in.file, targetOf(m))
}

// targetOf returns the checks of values for a bundle.
func targetOf(m *bundle.Manifest) spec.Target {
	t := configfile.TargetOf(m)
	return spec.Target{CNI: t.CNI, Checker: func(nodeIP string) spec.Checker {
		return &configfile.Checker{Target: t, Host: configfile.HostAt(nodeIP)}
	}}
}

func (in *site) read(cmd *cobra.Command, out io.Writer) (_ *opened, err error) {
	in.keep(cmd)
	b, err := in.open()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = b.Close()
		}
	}()
	c, err := in.described(b)
	if err != nil {
		return nil, err
	}
	skip, err := in.skipped(c)
	if err != nil {
		return nil, err
	}
	if in.parallel < 1 {
		return nil, fault.New(fault.Usage, "--parallel %d: at least one host is worked on", in.parallel).Hint("for example: --parallel 10")
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	file, err := run.NewFile(cmd.Context(), b)
	if err != nil {
		return nil, err
	}
	verbosity, _ := cmd.Flags().GetInt("v")
	display := live.New(out, verbosity > 0)
	d := in.dial(display)
	var log *logFile
	if in.recorded {
		command := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().CommandPath()+" ")
		if log, err = openLog(c.Name, strings.TrimPrefix(command, "cluster "), time.Now()); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: this run has no log: %v\n", err)
		} else {
			log.text("", strings.Join(append([]string{cmd.CommandPath()}, given(cmd)...), " "))
			display.Log = log.text
			d = loggedDialer{d, log}
		}
	}
	s := &run.Site{Cluster: c, File: file, Dialer: d, Display: display, Parallel: in.parallel, Skip: skip, Who: who(cmd)}
	return &opened{s, file, d, in.skip, log}, nil
}

// given returns the flags that the user gave.
func given(cmd *cobra.Command) (list []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) { list = append(list, "--"+f.Name+"="+f.Value.String()) })
	return list
}

// skipped refuses names that are not in cluster.yaml.
func (in *site) skipped(c *spec.Cluster) (map[string]bool, error) {
	skip := map[string]bool{}
	for _, name := range in.skip {
		if !slices.ContainsFunc(c.Hosts, func(h spec.Host) bool { return h.Name == name }) {
			return nil, fault.New(fault.Usage, "--skip %q: %s has no host with this name", name, in.file).Hint("see the names in " + in.file)
		}
		skip[name] = true
	}
	return skip, nil
}

func (s *opened) close() {
	s.Site.Display.Stop()
	s.Site.Close()
	_ = s.dialer.Close()
	s.file.Close()
	_ = s.file.Bundle.Close()
}

// who names this driver in the locks of the hosts.
func who(cmd *cobra.Command) string {
	name, machine := "?", "?"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		machine = h
	}
	return fmt.Sprintf("%s@%s, pid %d (%s), %s %s", name, machine, os.Getpid(), strings.ToLower(rand.Text()[:6]), cmd.Parent().Name(), cmd.Name())
}

// isTerminal reports whether a person can answer questions.
func isTerminal(cmd *cobra.Command) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	return ok && term.IsTerminal(int(in.Fd()))
}
