package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/cmd/output"
	"airlift/installer/config"
)

// tokenDocument is the document that kubeadm token list prints for each token.
type tokenDocument struct {
	metav1.TypeMeta
	Token       string       `json:"token"`
	Description string       `json:"description,omitempty"`
	Expires     *metav1.Time `json:"expires,omitempty"`
	Usages      []string     `json:"usages,omitempty"`
	Groups      []string     `json:"groups,omitempty"`
}

func tokenList(in *tokenFlags) *cobra.Command {
	formats := &output.Flags{}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the tokens",
		Example: "  ./install token list\n  ./install token list -o jsonpath='{.token}{\"\\n\"}'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := formats.Printer()
			if err != nil {
				return err
			}
			c, err := in.client()
			if err != nil {
				return err
			}
			tokens, broken := c.ListTokens(cmd.Context())
			if show == nil {
				err = printTokens(cmd, tokens)
			}
			for i := 0; show != nil && err == nil && i < len(tokens); i++ {
				err = show(cmd.OutOrStdout(), documentOf(tokens[i]))
			}
			return cmp.Or(err, broken)
		},
	}
	formats.Bind(cmd.Flags())
	return cmd
}

func documentOf(t config.BootstrapToken) tokenDocument {
	doc := tokenDocument{TypeMeta: output.Type("BootstrapToken"), Token: t.Token, Description: t.Description, Usages: t.Usages, Groups: t.Groups}
	if !t.Expires.IsZero() {
		doc.Expires = &metav1.Time{Time: t.Expires}
	}
	return doc
}

func printTokens(cmd *cobra.Command, tokens []config.BootstrapToken) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
	for _, t := range tokens {
		ttl, expires := "<forever>", "<never>"
		if !t.Expires.IsZero() {
			expires = t.Expires.UTC().Format(time.RFC3339)
			if ttl = "<expired>"; time.Until(t.Expires) > 0 {
				ttl = time.Until(t.Expires).Round(time.Minute).String()
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.Token, ttl, expires,
			cmp.Or(strings.Join(t.Usages, ","), "<none>"), cmp.Or(t.Description, "<none>"), cmp.Or(strings.Join(t.Groups, ","), "<none>"))
	}
	return w.Flush()
}
