package certscmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"airlift/cmd/output"
	"airlift/installer/flow/certs"
	"airlift/installer/pki"
)

func newExpiration() *cobra.Command {
	source, exit, due := &certs.Source{}, output.PlanExit(false), false
	cmd := &cobra.Command{
		Use:   "check-expiration",
		Short: "Show when certificates and kubeconfigs expire",
		Long: `Show when this control plane's certificates, kubeconfigs and CAs expire. An
externally managed certificate is signed by a CA whose key is not on this host.

With --detailed-exitcode, the exit code is 5 if a certificate is due: less than a third of its
validity period is left.`,
		Example: "  ./install certs check-expiration\n  ./install certs check-expiration -o json",
	}
	bind(cmd.Flags(), source)
	exit.Bind(cmd.Flags())
	output.Show(cmd, func(cmd *cobra.Command, _ []string) (Expirations, error) {
		source.Warn = output.Warner(cmd)
		cfg, err := source.Load(cmd.Context())
		if err != nil {
			return Expirations{}, err
		}
		signed, cas, err := pki.Expirations(cfg, source.FS())
		now, period := time.Now(), pki.ValidityPeriod(cfg)
		due = slices.ContainsFunc(signed, func(c pki.Expiration) bool { return !c.Missing && c.Due(now, period) })
		return expirationInfo(signed, cas, now), err
	}, Expirations.write)
	show := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := show(cmd, args); err != nil || !due {
			return err
		}
		return exit.Work()
	}
	return cmd
}

// Expirations is the document that kubeadm certs check-expiration prints.
type Expirations struct {
	metav1.TypeMeta
	Certificates           []expiration `json:"certificates"`
	CertificateAuthorities []expiration `json:"certificateAuthorities"`
}

type expiration struct {
	Name              string      `json:"name"`
	ExpirationDate    metav1.Time `json:"expirationDate"`
	ResidualTime      int64       `json:"residualTime"` // seconds
	ExternallyManaged bool        `json:"externallyManaged"`
	CAName            string      `json:"caName,omitempty"`
	Missing           bool        `json:"missing"`
}

func expirationInfo(signed, cas []pki.Expiration, now time.Time) Expirations {
	list := func(held []pki.Expiration) (rows []expiration) {
		for _, h := range held {
			row := expiration{Name: h.Name, Missing: h.Missing}
			if !h.Missing {
				row.ExpirationDate, row.ResidualTime = metav1.NewTime(h.NotAfter), int64(h.NotAfter.Sub(now)/time.Second)
				row.ExternallyManaged, row.CAName = h.External, h.CA
			}
			rows = append(rows, row)
		}
		return rows
	}
	return Expirations{
		TypeMeta:     output.Type("CertificateExpirationInfo"),
		Certificates: list(signed), CertificateAuthorities: list(cas),
	}
}

func (e Expirations) write(out io.Writer) error {
	now := time.Now()
	w := tabwriter.NewWriter(out, 10, 4, 3, ' ', 0)
	table := func(list []expiration, titles string, more func(expiration) string) {
		fmt.Fprintln(w, titles)
		for _, c := range list {
			if c.Missing {
				fmt.Fprintln(w, "!MISSING! "+c.Name+strings.Repeat("\t", strings.Count(titles, "\t")))
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.Name, c.ExpirationDate.Format(certs.DateLayout), residual(c.ExpirationDate.Time, now), more(c))
		}
	}
	managed := func(c expiration) string { return map[bool]string{true: "yes", false: "no"}[c.ExternallyManaged] }
	table(e.Certificates, "CERTIFICATE\tEXPIRES\tRESIDUAL TIME\tCERTIFICATE AUTHORITY\tEXTERNALLY MANAGED", func(c expiration) string { return c.CAName + "\t" + managed(c) })
	table(e.CertificateAuthorities, "\nCERTIFICATE AUTHORITY\tEXPIRES\tRESIDUAL TIME\tEXTERNALLY MANAGED", managed)
	return w.Flush()
}

// residual returns the remaining time in the format of kubectl's ages. For
// expired certificates, kubeadm prints "<invalid>" instead of "<expired>".
func residual(end, now time.Time) string {
	if now.After(end) {
		return "<expired>"
	}
	return duration.HumanDuration(end.Sub(now))
}
