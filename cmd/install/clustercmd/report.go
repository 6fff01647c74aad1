package clustercmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"airlift/cmd/install/clustercmd/overview"
	"airlift/cmd/output"
	"airlift/installer/doctor"
	"airlift/installer/host/filesystem"
	"airlift/installer/multihost/run"
	"airlift/installer/redact"
	"airlift/installer/status"
	"airlift/internal/progress"
)

func newReport(in *site) *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write a page about the cluster for a browser, to be mailed",
		Long: `Write one HTML file about the cluster: its hosts as a picture, versions, when certificates
expire, backups, what was edited by hand, what apply would do, what doctor suspects, and when
each host did what in the last run. A host that does not answer is shown with the reason.

The file needs no network, has no scripts, and can be printed on A4. Secrets are redacted,
as in the archive of doctor; names and addresses are not. Look at it before you send it.

FILE is report-CLUSTER-TIME.html in the current directory, unless --html names another one;
- is standard output. It changes nothing on the hosts, and takes up to a minute or two.

Exit codes: 0 the report was written, whatever it shows; 1 it could not be written.`,
		Example: "  ./install cluster report\n  ./install cluster report --html plant-7.html\n  ./install cluster report --html - | ssh HOST 'cat > plant-7.html'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return in.with(cmd, cmd.ErrOrStderr(), func(ctx context.Context, s *opened) error {
				name := file
				if name == "" {
					name = s.fileName(nil, "report", ".html")
				}
				if name != "-" {
					if err := checkOutput(name); err != nil {
						return err
					}
				}
				page, err := s.report(ctx)
				if err != nil {
					return err
				}
				if name == "-" {
					_, err := output.Verbatim(cmd.OutOrStdout()).Write(page)
					return err
				}
				if err := filesystem.WriteOutput(name, page, 0o600); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "The report is %s, %s. Open it in a browser. Look at it before you send it.\n", name, progress.Bytes(int64(len(page))))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&file, "html", "", "write this `FILE`; - is standard output")
	return cmd
}

// report returns the page. What cannot be read is on it, with the reason.
func (s *opened) report(ctx context.Context) ([]byte, error) {
	s.Site.Display.Start()
	defer s.Site.Display.Clear()
	defer s.Site.Discard(ctx)
	if err := s.Site.Gather(ctx, false); err != nil { // a plan needs the installer of this file
		return nil, err
	}
	site := s.status(ctx)
	if err := hideSecrets(site); err != nil {
		return nil, err
	}
	r := overview.Report{Site: site, Time: time.Now(), Findings: map[string][]overview.Finding{}, NoFindings: map[string]string{}}
	if m, err := s.file.Bundle.Manifest(); err == nil {
		r.File = m.KubernetesVersion
	}
	r.Plan, r.NoPlan = s.compute(ctx, rules{})
	s.suspect(ctx, &r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r.HTML(), nil
}

// hideSecrets redacts what 'install status' printed on the hosts, as the doctor does.
func hideSecrets(site *overview.Site) error {
	hide := redact.As[status.Status]()
	for i := range site.Hosts {
		h := &site.Hosts[i]
		if h.Status == nil {
			continue
		}
		data, err := json.Marshal(h.Status)
		public := &status.Status{}
		if err == nil {
			err = json.Unmarshal(hide(data), public)
		}
		if err != nil {
			return fmt.Errorf("redacting the status of %s: %w", h.Name, err)
		}
		h.Status, h.Problems, h.Warnings, h.Drift = public, public.Problems, public.Warnings, public.Drift
	}
	site.Complete()
	return nil
}

// suspect asks the doctor of each host that is a node, or began to be one.
func (s *opened) suspect(ctx context.Context, r *overview.Report) {
	hosts := slices.DeleteFunc(slices.Clone(s.Site.Hosts()), func(h *run.Host) bool {
		return h.Err != nil || h.Facts.Node == nil && h.Facts.Unfinished == ""
	})
	type answer struct {
		found []overview.Finding
		err   error
	}
	all, _ := run.Ask(ctx, s.Site, "doctor", hosts, func(ctx context.Context, h *run.Host) (answer, error) {
		out, err := h.Installer(ctx, "doctor", "-", "--since", "1h", "--max-size", "1")
		found := []overview.Finding(nil)
		if err == nil {
			found, err = suspicionsOf(out)
		}
		return answer{found, err}, err
	})
	for name, a := range all {
		if r.Findings[name] = a.found; a.err != nil {
			r.NoFindings[name] = a.err.Error()
		}
	}
}

// suspicionsOf reads the suspicions in the archive of a doctor.
func suspicionsOf(archive []byte) (list []overview.Finding, err error) {
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("reading the archive of the host: %w", err)
	}
	r := tar.NewReader(io.LimitReader(compressed, maxArchive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the archive of the host has no suspicions.json")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the archive of the host: %w", err)
		}
		if path.Base(h.Name) != "suspicions.json" {
			continue
		}
		var all []doctor.Suspicion
		if err := json.NewDecoder(r).Decode(&all); err != nil {
			return nil, fmt.Errorf("reading suspicions.json: %w", err)
		}
		for _, s := range all {
			list = append(list, overview.Finding{What: s.Saw, Why: s.Why, Fix: s.Fix})
		}
		return list, nil
	}
}
