package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/cmd/output"
	"airlift/installer/config"
	"airlift/installer/payload"
)

func newConfigImagesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Short:   "List the images of a cluster",
		Example: "  ./install config images list",
	}
	cmd.AddCommand(newConfigImagesListCmd(), newConfigImagesPullCmd())
	return cmd
}

// imageList is the document that kubeadm config images list prints.
type imageList struct {
	metav1.TypeMeta
	Images []string `json:"images"`
}

type imagesFlags struct {
	path string
	cfg  config.Config
}

func (in *imagesFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&in.path, "config", "", "use the registries and tags of this kubeadm configuration `FILE`; - is standard input")
	f.Var(featureGates{&in.cfg.FeatureGates}, "feature-gates", "kubeadm's feature gates, NAME=true|false, separated by commas; they do not change the images")
	f.StringVar(&in.cfg.ImageRepository, "image-repository", "", "the registry in the names of the control plane's images")
	f.StringVar(&in.cfg.KubernetesVersion, "kubernetes-version", "", "the Kubernetes version; with a bundle, only the bundle's is accepted")
}

// list reads the configuration file and returns the names of the images.
func (in *imagesFlags) list(cmd *cobra.Command) ([]string, error) {
	if err := readConfig(cmd, in.path, &in.cfg, config.ReadInit); err != nil {
		return nil, err
	}
	return configReader(cmd).Images(&in.cfg)
}

func newConfigImagesListCmd() *cobra.Command {
	in := &imagesFlags{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images that this bundle contains and a cluster uses",
		Long: `List the images that this bundle contains and a cluster with this configuration
uses, with the names that it uses. The images are in this file: init and join do
not pull them from the registries in the names.`,
		Example: "  ./install config images list\n  ./install config images list --config kubeadm.yaml -o json",
	}
	in.bind(cmd.Flags())
	return output.Show(cmd, func(cmd *cobra.Command, _ []string) (imageList, error) {
		m, err := manifest()
		if err == nil && m != nil {
			err = payload.NeedsKubernetes(m, cmd.CommandPath())
		}
		if err != nil {
			return imageList{}, err
		}
		list, err := in.list(cmd)
		return imageList{TypeMeta: output.Type("Images"), Images: list}, err
	}, imageList.write)
}

// newConfigImagesPullCmd returns a command that only names the images: scripts for kubeadm
// run it before init.
func newConfigImagesPullCmd() *cobra.Command {
	in := &imagesFlags{}
	cmd := &cobra.Command{
		Use:   "pull",
		Short: "Print which images this file contains; no image is pulled",
		Long: `Print which images this file contains. The command pulls no image, because init and
join import the images from this file. It exists for scripts that pull before they
run init. It fails if the configuration requires an image that the file does not
contain.`,
		Example: "  ./install config images pull",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := openBundle()
			if err != nil {
				return err
			}
			defer f.Close()
			m, err := f.Manifest()
			if err == nil {
				err = payload.NeedsKubernetes(m, cmd.CommandPath())
			}
			if err != nil {
				return err
			}
			list, err := in.list(cmd)
			if err != nil {
				return err
			}
			for _, image := range list {
				fmt.Fprintln(cmd.OutOrStdout(), "in this file: "+image)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "Nothing to pull. These commands import the images: ./install init, ./install join")
			return err
		},
	}
	in.bind(cmd.Flags())
	cmd.Flags().StringVar(&in.cfg.NodeRegistration.CRISocket, "cri-socket", "", "has no effect: nothing is pulled")
	return cmd
}

func (l imageList) write(out io.Writer) error {
	_, err := fmt.Fprint(out, strings.Join(append(l.Images, ""), "\n"))
	return err
}
