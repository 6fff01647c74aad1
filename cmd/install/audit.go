package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"airlift/cmd/install/clustercmd/overview"
	"airlift/cmd/output"
	"airlift/installer/audit"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/internal/fault"
)

func newAuditCmd() *cobra.Command {
	formats, kubeconfig, page := &output.Flags{}, "", ""
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Judge this node and its cluster by the CIS Kubernetes Benchmark",
		Long: `Judge this node and its cluster by the 131 checks of the CIS Kubernetes Benchmark 2.0.1, and
print what failed, with the command that fixes it. Values are effective ones: a flag that is
not set has its default, and the kubelet itself is asked for its configuration.

A check has passed or failed; is by design, with the reason; is not applicable, for example
because this host has no such file; or is to be judged by a person, with what was found.

It changes nothing, and needs no network but the API server. It also works on nodes that
kubeadm installed, without Airlift. It reads the cluster with ` + adminConf + `:
on a worker, it judges only the node itself. For all hosts: './install cluster audit'.

With --html, it writes a page that can be printed and signed. Secrets are redacted.

Exit codes: 0 no check failed, perhaps with some to be judged by a person; 1 a check failed,
something could not be read, or this host is not a node.`,
		Example: "  ./install audit\n  ./install audit -o json\n  ./install audit --html audit.html",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			if page != "" {
				if err := filesystem.CheckOutput(page); err != nil {
					return fault.Wrap(fmt.Errorf("writing %s: %w", page, err), fault.Usage, "choose a file in an existing directory")
				}
			}
			h, damaged := host.Open("/")
			if damaged != nil {
				h = host.OpenDamaged("/")
			}
			report, err := (&audit.Reader{Host: h, Kubeconfig: kubeconfig}).Read(cmd.Context())
			if err != nil {
				return err
			}
			site := audit.NewSite(report.Host, []audit.HostReport{{Name: report.Host, Report: report}})
			err = overview.ShowAudit(cmd.OutOrStdout(), site, page, show, report)
			if os.Geteuid() != 0 {
				output.Warner(cmd)("this user is not root, so the audit is incomplete")
			}
			switch {
			case err != nil:
				return err
			case report.Counts[audit.Failed] > 0:
				return fault.New(fault.Failure, "%d checks failed on this host", report.Counts[audit.Failed]).Hint("the command that fixes each is above; what each check means: ./install docs audit")
			case !report.Passed():
				return fault.New(fault.Failure, "the audit is incomplete: %s", report.Unread[0]).Hint("run it as root while the API server answers: ./install audit")
			}
			return nil
		},
	}
	formats.Bind(cmd.Flags())
	cmd.Flags().StringVar(&page, "html", "", "write this `FILE` instead, for a browser, to be printed and signed")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig `FILE` of an administrator (default: "+adminConf+")")
	return cmd
}
