package certscmd

import (
	"fmt"
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
	source, formats := &certs.Source{}, &output.Flags{}
	cmd := &cobra.Command{
		Use:   "check-expiration",
		Short: "Show when certificates and kubeconfigs expire",
		Long: `Show when this control plane's certificates, kubeconfigs and CAs expire. An
externally managed certificate is signed by a CA whose key is not on this host.`,
		Example: "  ./install certs check-expiration\n  ./install certs check-expiration -o json",
		Args:    output.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			source.Warn = output.Warner(cmd)
			cfg, err := source.Load(cmd.Context())
			if err != nil {
				return err
			}
			signed, cas, err := pki.Expirations(cfg, source.FS())
			if err != nil {
				return err
			}
			now := time.Now()
			if show != nil {
				return show(cmd.OutOrStdout(), expirationInfo(signed, cas, now))
			}
			return printExpirations(cmd, signed, cas, now)
		},
	}
	bind(cmd.Flags(), source)
	formats.Bind(cmd.Flags())
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

func printExpirations(cmd *cobra.Command, signed, cas []pki.Expiration, now time.Time) error {
	yesNo := map[bool]string{true: "yes", false: "no"}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 10, 4, 3, ' ', 0)
	fmt.Fprintln(w, "CERTIFICATE\tEXPIRES\tRESIDUAL TIME\tCERTIFICATE AUTHORITY\tEXTERNALLY MANAGED")
	for _, h := range signed {
		if h.Missing {
			fmt.Fprintf(w, "!MISSING! %s\t\t\t\t\n", h.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", h.Name, h.NotAfter.Format(certs.DateLayout),
			residual(h.NotAfter, now), h.CA, yesNo[h.External])
	}
	fmt.Fprintln(w, "\nCERTIFICATE AUTHORITY\tEXPIRES\tRESIDUAL TIME\tEXTERNALLY MANAGED")
	for _, h := range cas {
		if h.Missing {
			fmt.Fprintf(w, "!MISSING! %s\t\t\t\n", h.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", h.Name, h.NotAfter.Format(certs.DateLayout), residual(h.NotAfter, now), yesNo[h.External])
	}
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
