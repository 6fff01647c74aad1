package clustercmd

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"airlift/cmd/install/clustercmd/overview"
	"airlift/cmd/output"
	"airlift/installer/audit"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/run"
	"airlift/internal/fault"
)

func newAudit(in *site) *cobra.Command {
	formats, page := &output.Flags{}, ""
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Judge all hosts by the CIS Kubernetes Benchmark",
		Long: `Judge all hosts of cluster.yaml and the cluster by the 131 checks of the CIS Kubernetes
Benchmark 2.0.1. It prints what 'audit' prints on each host, with the hosts of each result.
A check has the worst verdict of its hosts. It changes nothing on the hosts.

With --html, it writes a page that can be printed and signed. Secrets are redacted.

Exit codes: 0 no check failed, perhaps with some to be judged by a person; 1 a check failed,
something could not be read, or a host does not answer or is not a node.`,
		Example: "  ./install cluster audit\n  ./install cluster audit -o json\n  ./install cluster audit --html audit.html",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			if page != "" {
				if err := checkOutput(page); err != nil {
					return err
				}
			}
			return in.with(cmd, cmd.ErrOrStderr(), func(ctx context.Context, s *opened) error {
				found, err := s.audit(ctx)
				if err != nil {
					return err
				}
				err = overview.ShowAudit(cmd.OutOrStdout(), found, page, show, found)
				if err == nil && !found.Passed() {
					err = fault.New(fault.Failure, "the audit of the cluster %s has failures", found.Name).Hint("what each check means: ./install docs audit")
				}
				return err
			})
		},
	}
	formats.Bind(cmd.Flags())
	cmd.Flags().StringVar(&page, "html", "", "write this `FILE` instead, for a browser, to be printed and signed")
	return cmd
}

// audit runs 'install audit' on all hosts. It needs the installer of this file: an older one has other checks, or none.
func (s *opened) audit(ctx context.Context) (*audit.Site, error) {
	s.Site.Display.Start()
	defer s.Site.Display.Clear()
	defer s.Site.Discard(ctx)
	if err := s.Site.Gather(ctx, false); err != nil {
		return nil, err
	}
	all, _ := run.Ask(ctx, s.Site, "audit", s.Site.Hosts(), func(ctx context.Context, h *run.Host) (*audit.Report, error) {
		report := &audit.Report{}
		out, err := h.Installer(ctx, "audit", "-o", "json")
		if decodeErr := json.Unmarshal(out, report); decodeErr != nil { // it also has a document if checks failed
			h.Err = cmp.Or(err, decodeErr)
			return nil, h.Err
		}
		return report, nil
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var hosts []audit.HostReport
	for _, h := range s.Site.Hosts() {
		one := audit.HostReport{Name: h.Name, Report: all[h.Name]}
		if h.Err != nil {
			one.Error, one.Hint = plan.Reason(h.Name, h.Err), fault.Hint(h.Err)
		}
		hosts = append(hosts, one)
	}
	return audit.NewSite(s.Site.Cluster.Name, hosts), nil
}
