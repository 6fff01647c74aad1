package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"airlift/cmd/output"
	"airlift/installer/doctor"
	"airlift/installer/host/filesystem"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// Defaults of the doctor's flags.
const (
	doctorSince   = 24 * time.Hour
	doctorMaxSize = 64
)

func newDoctorCmd() *cobra.Command {
	since, maxSize, kubeconfig, logsOf := doctorSince, int64(doctorMaxSize), "", []string(nil)
	cmd := &cobra.Command{
		Use:   "doctor [FILE|-]",
		Short: "Find out what is wrong, and write an archive for a remote engineer",
		Long: `Find out what is wrong with this node, print it, and write an archive for an engineer
who cannot log in. The summary lists suspected problems, causes first: what was seen, why
it matters, and what to type.

The archive has units, logs, container states, events, objects of kube-system, dates and
names of certificates, addresses, routes, iptables and nftables rules, sysctls, disks,
clocks, the ledger, the results of the preflight checks, and the status. It has no Secrets.
Of files and objects, it keeps only values that are known to be harmless. In logs of the
node's components, PEM blocks, private keys, tokens and users in URLs are hidden.
"[redacted]" is in the place of everything that was taken out. ./install docs status lists
what is kept. Look at the archive before you send it.

Logs of pods in other namespaces than kube-system and kube-flannel are gathered only
with --logs-of. They are not redacted: only
PEM blocks, private keys, tokens and users in URLs are hidden, and no passwords. They are in
the directory logs-not-redacted of the archive.

FILE ends with .tar.gz, .tgz or .tar.zst; the default is doctor-HOST-TIME.tar.gz in
the current directory. - is standard output, as .tar.gz. The command changes nothing else.
It also works while the API server or containerd is down or hangs, after a failed init,
on a worker, and on a host that is not a node. Most of the facts need root.

Exit codes: 0 the archive was written, with or without suspected problems; 1 it could not
be written.`,
		Example: "  ./install doctor\n  ./install doctor /root/host1.tar.zst --since 2h\n  ./install doctor --logs-of default --logs-of monitoring\n  ./install doctor - | ssh HOST 'cat > host1.tar.gz'",
		Args:    output.AtMostOneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if since <= 0 || maxSize <= 0 {
				return fault.New(fault.Usage, "--since and --max-size must be greater than 0").Hint("for example: --since 2h --max-size 64")
			}
			if err := doctor.CheckNamespaces(logsOf); err != nil {
				return err
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			if err := checkArchive(cmd, name); err != nil {
				return err
			}
			r, done := openStatus(cmd, kubeconfig)
			defer done()
			d := &doctor.Doctor{Host: r.Host, Reader: r, Options: doctor.Options{Since: since, MaxSize: maxSize << 20, LogsOf: logsOf}}
			if verbosity, _ := cmd.Flags().GetInt("v"); verbosity > 0 {
				d.Progress = func(what string) { fmt.Fprintf(cmd.ErrOrStderr(), "gathering %s\n", what) }
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "Gathering facts about this host. This takes up to a minute.")
			report, err := d.Gather(cmd.Context())
			if err != nil {
				return err
			}
			for i, e := range report.Entries {
				if !strings.Contains(e.Name, "/") { // a text of Airlift
					report.Entries[i].Content = []byte(output.Named(cmd.OutOrStdout(), string(e.Content)))
				}
			}
			return writeReport(cmd, report, name)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().DurationVar(&since, "since", since, "how far back logs go")
	cmd.Flags().Int64Var(&maxSize, "max-size", maxSize, "the maximum size of all files together, in `MiB` before compression; of a file that is too large, only the end is kept")
	cmd.Flags().StringArrayVar(&logsOf, "logs-of", nil, "also gather the logs of the site's own pods in this `NAMESPACE`, which are not redacted, but for PEM blocks, private keys, tokens and users in URLs; it can be repeated")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of the cluster (default: "+adminConf+" on a control plane, the kubelet's on a worker)")
	return cmd
}

// checkArchive refuses a name before anything is gathered.
func checkArchive(cmd *cobra.Command, name string) error {
	switch name {
	case "":
		return nil
	case "-":
		if f, ok := cmd.OutOrStdout().(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
			return fault.New(fault.Usage, "the archive cannot be written to a terminal").Hint("write to a file, or to a pipe: ./install doctor - > host1.tar.gz")
		}
		return nil
	}
	if err := doctor.CheckName(name); err != nil {
		return err
	}
	if err := filesystem.CheckOutput(name); err != nil {
		return fault.Wrap(fmt.Errorf("writing %s: %w", name, err), fault.Usage, cmp.Or(fault.Hint(err), "choose a file in an existing directory"))
	}
	return nil
}

// writeReport writes the archive, then the summary. A file is written at once, so that an
// interrupted command leaves none.
func writeReport(cmd *cobra.Command, report *doctor.Report, name string) error {
	if name == "-" {
		fmt.Fprint(cmd.ErrOrStderr(), report.Summary())
		return report.WriteArchive(output.Verbatim(cmd.OutOrStdout()), ".tar.gz")
	}
	if name == "" {
		name = report.FileName()
	}
	var archive bytes.Buffer
	if err := report.WriteArchive(&archive, name); err != nil {
		return err
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	if err := filesystem.WriteOutput(name, archive.Bytes(), 0o600); err != nil {
		fmt.Fprint(cmd.OutOrStdout(), report.Summary())
		return fault.Wrap(fmt.Errorf("writing %s: %w", name, err), fault.Failure, "choose another file system: ./install doctor /run/host.tar.gz; or a pipe: ./install doctor - | ssh …")
	}
	if path, err := filepath.Abs(name); err == nil {
		name = path
	}
	fmt.Fprint(cmd.OutOrStdout(), report.Summary())
	fmt.Fprintf(cmd.OutOrStdout(), "\nThe archive is %s: %d files, %s. Look at it before you send it: tar -tf %s\n", name, len(report.Entries), progress.Bytes(int64(archive.Len())), name)
	if os.Geteuid() != 0 {
		output.Warner(cmd)("this user is not root, so the archive is incomplete")
	}
	return nil
}
