package clustercmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"airlift/bundle"
	"airlift/cmd/output"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/run"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// decodeAll decodes the outputs of hosts by host name, and returns why a host has no output.
func decodeAll(members []*run.Host, outputs map[string][]byte) (map[string]any, error) {
	all, failed := map[string]any{}, map[string]string{}
	for _, h := range members {
		if h.Err != nil {
			failed[h.Name] = plan.Reason(h.Name, h.Err)
			continue
		}
		var value any
		if err := json.Unmarshal(outputs[h.Name], &value); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		all[h.Name] = value
	}
	return map[string]any{"hosts": all, "errors": failed}, nil
}

// collecting makes cmd run a command on the nodes with a role, and print what they printed: in one document, or by text.
func (in *site) collecting(cmd *cobra.Command, role string, args func(document bool) []string, text func(io.Writer, []*run.Host, map[string][]byte) error) *cobra.Command {
	formats := &output.Flags{}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		show, err := formats.Printer()
		if err != nil {
			return err
		}
		return in.gathered(cmd, cmd.ErrOrStderr(), nil, func(ctx context.Context, s *opened) error {
			members, none := s.Site.Members(role)
			if none != nil && show == nil {
				return none
			}
			args := args(show != nil)
			outputs, failed := run.Ask(ctx, s.Site, strings.Join(args[:2], " "), members, func(ctx context.Context, h *run.Host) (out []byte, err error) {
				out, h.Err = h.Installer(ctx, args...)
				return out, h.Err
			})
			if s.Site.Display.Clear(); ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err := error(nil)
			if show == nil {
				err = text(cmd.OutOrStdout(), slices.DeleteFunc(slices.Clone(members), func(h *run.Host) bool { return h.Err != nil }), outputs)
			} else if all, decodeErr := decodeAll(members, outputs); decodeErr != nil {
				err = decodeErr
			} else {
				err = show(cmd.OutOrStdout(), all)
			}
			return cmp.Or(err, none, failed)
		})
	}
	formats.Bind(cmd.Flags())
	return cmd
}

func newCerts(in *site) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Show and renew the certificates of all control planes",
	}
	cmd.AddCommand(newCertsExpiration(in), newCertsRenew(in))
	return cmd
}

func newCertsExpiration(in *site) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check-expiration",
		Short: "Show when the certificates of all control planes expire",
		Long: `Show when the certificates, kubeconfigs and CAs of all control planes expire. It works while
the API server is down, and changes nothing.`,
		Example: "  ./install cluster certs check-expiration\n  ./install cluster certs check-expiration -o json",
	}
	return in.collecting(cmd, spec.ControlPlane, func(document bool) []string {
		args := []string{"certs", "check-expiration"}
		if document {
			args = append(args, "-o", "json")
		}
		return args
	}, func(out io.Writer, nodes []*run.Host, outputs map[string][]byte) error {
		textOf(out, nodes, outputs)
		return nil
	})
}

func newCertsRenew(in *site) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "renew",
		Short: "Renew all certificates on all control planes, one after the other",
		Long: `Renew all certificates on all control planes, one after the other, as 'certs renew all
--restart' does on one. The components restart one by one, and the API is served meanwhile
if there are several control planes. It stops at the first control plane that fails.`,
		Example: "  ./install cluster certs renew\n  ./install cluster certs renew --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return in.record().gathered(cmd, cmd.OutOrStdout(), func(s *opened) error {
				if yes {
					return nil
				}
				return confirm(cmd, "This renews the certificates and restarts the components of all control planes of "+s.Site.Cluster.Name+". Continue? [y/N]", "", "answer with y, or run it with --yes")
			}, func(ctx context.Context, s *opened) error {
				nodes, err := s.Site.Nodes(spec.ControlPlane)
				if err != nil {
					return err
				}
				return s.Site.InTurn(ctx, "certs renew", nodes, "certs", "renew", "all", "--restart")
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func newImages(in *site) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List the images of all nodes, and import further ones",
	}
	cmd.AddCommand(newImagesList(in), newImagesImport(in))
	return cmd
}

func newImagesList(in *site) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the images of all nodes",
		Long:    "List the images in the containerd of all nodes, each with the nodes that do not have it.",
		Example: "  ./install cluster images list\n  ./install cluster images list -o json",
	}
	return in.collecting(cmd, "", func(bool) []string { return []string{"images", "list", "-o", "json"} }, writeImages)
}

// writeImages prints the images of nodes as one table.
func writeImages(out io.Writer, nodes []*run.Host, outputs map[string][]byte) error {
	has := map[string]map[string]bool{}
	for _, h := range nodes {
		var list struct {
			Images []struct{ References []string }
		}
		if err := json.Unmarshal(outputs[h.Name], &list); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		for _, image := range list.Images {
			for _, ref := range image.References {
				if has[ref] == nil {
					has[ref] = map[string]bool{}
				}
				has[ref][h.Name] = true
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tNODES\tMISSING ON")
	for _, ref := range slices.Sorted(maps.Keys(has)) {
		var missing []string
		for _, h := range nodes {
			if !has[ref][h.Name] {
				missing = append(missing, h.Name)
			}
		}
		fmt.Fprintf(w, "%s\t%d of %d\t%s\n", ref, len(has[ref]), len(nodes), strings.Join(missing, ", "))
	}
	return w.Flush()
}

func newImagesImport(in *site) *cobra.Command {
	return &cobra.Command{
		Use:   "import",
		Short: "Import the site's own images in this file on all nodes that need them",
		Long: `Import the site's own images in this file, which may be an additional one. With the embedded
registry, the file goes to one control plane, and every node gets the images from there.
Without it, the file goes to every node.

It is safe to run it again: it finishes what an interrupted run left.`,
		Example: "  ./more cluster images import",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return in.record().gathered(cmd, cmd.OutOrStdout(), func(s *opened) error {
				m, err := s.file.Bundle.Manifest()
				if err == nil && m.Additional() && !slices.Contains(m.Only, bundle.OnlyImages) {
					err = fault.New(fault.Usage, "this file has no images").Hint("use a file that 'bundle build --only images' wrote")
				}
				return cmp.Or(err, s.file.Bundle.NeedsWhole())
			}, func(ctx context.Context, s *opened) error { return s.Site.Import(ctx) })
		},
	}
}
