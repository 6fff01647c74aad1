package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"airlift/images/release"
)

func newVersionsCmd() *cobra.Command {
	var output *outputFormat
	cmd := &cobra.Command{
		Use:   "versions",
		Short: "List the known Kubernetes versions and their components",
		Long: `List the Kubernetes versions that this command knows, oldest first, with the versions
of their components. No network is needed.

KUBEADM CONFIG lists the versions of kubeadm's configuration that kubeadm of these
releases reads; those in parentheses only with --allow-experimental-api. install init
and install join read v1beta3, v1beta4 and v1 for every Kubernetes version.

ADD-ON lists the software that "bundle build --addon" adds, with its version for the
newest release.`,
		Example: `  bundle versions
  bundle versions --output json | jq -r '.releases[] | select(.minor == "v1.36").etcd'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if *output == "json" {
				return versionsJSON(cmd.OutOrStdout())
			}
			return versionsText(cmd.OutOrStdout())
		},
	}
	output = addOutputFlag(cmd)
	return cmd
}

// knownVersions is the document that versions --output json prints.
type knownVersions struct {
	Oldest string `json:"oldest"`
	Newest string `json:"newest"`
	// Components are the same for every Kubernetes version.
	Components map[string]string `json:"components"`
	// AddOns are the optional add-ons for the newest release.
	AddOns   []release.AddOn `json:"addOns"`
	Releases []release.Range `json:"releases"`
}

func versionsJSON(w io.Writer) error {
	known := release.Ranges()
	v := knownVersions{Oldest: known[0].First, Newest: known[len(known)-1].Last, Components: map[string]string{}, Releases: known}
	for _, c := range release.Common() {
		v.Components[c.Name] = c.Version
	}
	var err error
	if v.AddOns, err = release.AddOns(v.Newest); err != nil {
		return err
	}
	return printJSON(w, v)
}

func versionsText(out io.Writer) error {
	known := release.Ranges()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "KUBERNETES\tETCD\tCOREDNS\tPAUSE\tCRICTL\tKUBEADM CONFIG\n")
	for _, r := range known {
		releases := r.First
		if r.Last != r.First {
			releases += " to " + r.Last
		}
		apis := strings.Join(r.ConfigAPIs, ", ")
		if len(r.Experimental) > 0 {
			apis += " (" + strings.Join(r.Experimental, ", ") + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", releases, r.Etcd, r.CoreDNS, r.Pause, r.Crictl, apis)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var common []string
	for _, c := range release.Common() {
		common = append(common, c.Name+" "+c.Version)
	}
	if _, err := fmt.Fprintf(out, "\nAll of these: %s\nOldest: %s. Newest: %s. \"bundle build\" without --version takes the newest release of %s.\n",
		strings.Join(common, ", "), known[0].First, known[len(known)-1].Last, release.Newest()); err != nil {
		return err
	}
	addOns, err := release.AddOns(known[len(known)-1].Last)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nADD-ON\tVERSION\t\n")
	for _, a := range addOns {
		fmt.Fprintf(w, "%s\t%s\t%s\n", a.Name, a.Version, a.About)
	}
	return w.Flush()
}
