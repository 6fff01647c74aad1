package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/bundle"
	"airlift/cmd/output"
	"airlift/installer/flow/site"
	"airlift/installer/host"
	"airlift/installer/payload"
	"airlift/installer/registry/images"
	"airlift/internal/fault"
)

func newImagesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List, export and remove images",
		Long: `List, export and remove images in the containerd of this node. The commands work with
any bundle file. To import the images in a file: './install import'.`,
		Example: "  ./install images list\n  ./install images prune --dry-run",
	}
	cmd.AddCommand(newImagesExportCmd(), newImagesListCmd(), newImagesPruneCmd(), newImagesUnpinCmd())
	return cmd
}

// nodeImageList is the document that the images commands print with --output.
type nodeImageList struct {
	Images []site.NodeImage `json:"images"`
	// NotHere are images that the control planes serve, and that this node does not have; only of images list.
	NotHere []images.Served `json:"notHere,omitempty"`
}

// nodeImagesFlags are the flags that the images commands share.
type nodeImagesFlags struct {
	formats output.Flags
	bundles []string
}

func (in *nodeImagesFlags) bind(f *pflag.FlagSet) {
	f.SortFlags = false
	in.formats.Bind(f)
}

// bindBundle adds --bundle, for commands that choose images that this file does not contain.
func (in *nodeImagesFlags) bindBundle(f *pflag.FlagSet, what string) {
	f.StringArrayVar(&in.bundles, "bundle", nil, "also "+what+" the images of this bundle `FILE` (repeatable)")
}

// nodeImagesRun is what a command does with the images of this node. show is nil for text.
type nodeImagesRun func(ctx context.Context, images *site.NodeImages, show output.Printer) error

// with opens this file, those to keep and the containerd of this node. A command that changes
// nothing does not lock the host.
func (in *nodeImagesFlags) with(cmd *cobra.Command, changes bool, run nodeImagesRun) error {
	show, err := in.formats.Printer()
	if err != nil {
		return err
	}
	c := console(cmd)
	if show != nil {
		c.Out = cmd.ErrOrStderr()
	}
	b, done, err := shared.Payload()
	if err != nil {
		return err
	}
	defer done()
	var keep []*payload.Bundle
	for _, path := range in.bundles {
		f, err := bundle.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		other, err := payload.OpenBundle(f)
		if err != nil {
			return err
		}
		keep = append(keep, other)
	}
	open, unlock := host.Open, func() {}
	if changes {
		open = func(string) (h *host.Host, err error) {
			h, unlock, err = openHost()
			return h, err
		}
	}
	h, err := open("/")
	if err != nil {
		return err
	}
	defer func() { unlock() }()
	images, err := site.OpenNodeImages(cmd.Context(), b, keep, h, c)
	if err != nil {
		return err
	}
	defer images.Close()
	return run(cmd.Context(), images, show)
}

func newImagesListCmd() *cobra.Command {
	in := &nodeImagesFlags{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images of this node",
		Long: `List the images in the containerd of this node: whether they are pinned, how many
containers and pods use them, running or not, also as an image volume, whether this
file contains them, and whether Airlift imported them, as images of Kubernetes or of
the site.

On a node that uses the embedded registry, the list also shows which of them the control
planes serve, so that a pod could pull them again, and which images they serve that are not
on this node.`,
		Example: "  ./install images list\n  ./install images list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return in.with(cmd, false, func(ctx context.Context, images *site.NodeImages, show output.Printer) error {
				images.AskRegistry(ctx)
				list, err := images.List(ctx)
				if err != nil {
					return err
				}
				notHere := images.NotHere(list)
				if show != nil {
					return show(cmd.OutOrStdout(), nodeImageList{list, notHere})
				}
				if err := site.WriteNodeImages(cmd.OutOrStdout(), list); err != nil {
					return err
				}
				return site.WriteNotHere(cmd.OutOrStdout(), notHere)
			})
		},
	}
	in.bind(cmd.Flags())
	return cmd
}

func newImagesPruneCmd() *cobra.Command {
	in, yes, dryRun, unserved, kubeconfig := &nodeImagesFlags{}, false, false, false, ""
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove images that nothing needs",
		Long: `Remove images from the containerd of this node that Airlift imported and that nothing
needs: no container on this node uses them or mounts them as an image volume, no workload
of the cluster names them, and this file does not contain them. The command prints them
and asks for confirmation.

On a node that uses the embedded registry, a removed image comes back when a pod needs it,
if a control plane serves it. Images that none serves stay, unless --unserved is given.

It never removes an image of Kubernetes, the pause image, or an image that was pulled,
imported or tagged by something other than Airlift.

The command asks the API server which images workloads name: pods, and the templates of
Deployments and of all other controllers, also of controllers without pods. On a control plane it
reads admin.conf. A worker has no such kubeconfig: use --kubeconfig with an
administrator's kubeconfig, or --bundle with every other file whose images the cluster uses. Without
both, nothing is removed. An operator may need images that only its code names: use
--bundle for their files as well.`,
		Example: "  ./install images prune --dry-run\n  ./more images prune\n  ./more images prune --kubeconfig admin.conf --yes\n  ./more images prune --bundle ./install",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return in.with(cmd, !dryRun, func(ctx context.Context, images *site.NodeImages, show output.Printer) error {
				if err := images.AskCluster(ctx, kubeconfig); err != nil {
					return err
				}
				images.Unserved = unserved
				images.AskRegistry(ctx)
				list, err := images.Prunable(ctx)
				if err != nil {
					return err
				}
				results := cmd.OutOrStdout()
				if show != nil {
					cmd.SetOut(cmd.ErrOrStderr())
				}
				out := cmd.OutOrStdout()
				switch {
				case len(list) == 0:
					fmt.Fprintln(out, "Nothing to remove.")
				case dryRun:
					fmt.Fprintln(out, "Nothing was changed. These images would be removed:")
					err = writePrunable(out, list)
				default:
					if err = writePrunable(out, list); err == nil && !yes {
						err = confirm(cmd, "These images are removed from this node. Continue?", "answer with y, or run it with --yes")
					}
					if err == nil {
						err = images.Prune(ctx, list)
					}
				}
				if err != nil || show == nil {
					return err
				}
				return show(results, nodeImageList{Images: list})
			})
		},
	}
	in.bind(cmd.Flags())
	in.bindBundle(cmd.Flags(), "keep")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", adminConf, "the kubeconfig `FILE` of an administrator of the cluster")
	cmd.Flags().BoolVar(&unserved, "unserved", false, "on a node that uses the embedded registry: also remove images that no control plane serves")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print which images would be removed")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// writePrunable prints the images, and whether they come back.
func writePrunable(out io.Writer, list []site.NodeImage) error {
	err := site.WriteNodeImages(out, list)
	if err == nil && slices.ContainsFunc(list, func(i site.NodeImage) bool { return i.Served != nil && *i.Served }) {
		_, err = fmt.Fprintln(out, "\nA pod that needs an image that is served pulls it again from a control plane.")
	}
	return err
}

func newImagesUnpinCmd() *cobra.Command {
	in, all := &nodeImagesFlags{}, false
	cmd := &cobra.Command{
		Use:   "unpin [IMAGE...]",
		Short: "Let the kubelet's garbage collection remove images",
		Long: `Remove the pinned label from images of this node. The kubelet then removes these images
when no container uses them and the disk is almost full. 'import' and init pin the images
of their file again.`,
		Example: "  ./install images unpin registry.example/app:1\n  ./more images unpin --all --bundle ./install",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return fault.New(fault.Usage, "unpin needs names of images, or --all").Hint("for example: ./install images unpin registry.example/app:1")
			case !all && len(in.bundles) > 0:
				return fault.New(fault.Usage, "--bundle has no effect without --all").Hint("remove --bundle")
			}
			return in.with(cmd, true, func(ctx context.Context, images *site.NodeImages, show output.Printer) error {
				list, err := images.Unpinnable(ctx, args)
				if err != nil {
					return err
				}
				if err := images.Unpin(ctx, list); err != nil {
					return err
				}
				if show != nil {
					return show(cmd.OutOrStdout(), nodeImageList{Images: list})
				}
				if len(list) == 0 {
					fmt.Fprintln(cmd.OutOrStdout(), "Nothing to do: none of the images is pinned.")
				}
				return nil
			})
		},
	}
	in.bind(cmd.Flags())
	cmd.Flags().BoolVar(&all, "all", false, "all of the site's own images that Airlift imported and that this file does not contain")
	in.bindBundle(cmd.Flags(), "leave pinned")
	return cmd
}
