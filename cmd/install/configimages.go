package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"airlift/fault"
	"airlift/images"
	"airlift/installer/config"
)

func newConfigImagesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Short:   "List the images of a cluster",
		Example: "  ./install config images list",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigImagesListCmd())
	return cmd
}

// imageList is the output of kubeadm config images list in JSON and YAML.
type imageList struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Images     []string `json:"images"`
}

func newConfigImagesListCmd() *cobra.Command {
	var path, output string
	var flags config.Config
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images that this bundle brings and a cluster uses",
		Long: `List the images that this bundle brings, under the names that a configuration
gives them, without those it leaves out. They are in the file itself: nothing is
pulled from the registries that they are named after.`,
		Example: "  ./install config images list\n  ./install config images list --config kubeadm.yaml -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"text", "json", "yaml"}, output) {
				return fault.New(fault.Usage, "", "--output %q is none of text, json, yaml", output)
			}
			if err := readConfig(cmd, path, &flags, config.ReadInit); err != nil {
				return err
			}
			list, err := imagesOf(cmd, &flags)
			if err != nil {
				return err
			}
			return printImages(cmd, list, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", "kubeadm's configuration file, whose registries and tags are to hold; - is standard input")
	f.StringVar(&flags.ImageRepository, "image-repository", "", "the registry that the control plane's images are named after")
	f.StringVar(&flags.KubernetesVersion, "kubernetes-version", "", "must be the bundle's, if given and if there is a bundle")
	f.StringVarP(&output, "output", "o", "text", "text, json or yaml")
	return cmd
}

// imagesOf returns the bundle's images in their order. Without a bundle it
// returns the images of the catalog.
func imagesOf(cmd *cobra.Command, c *config.Config) ([]string, error) {
	m, err := manifest()
	if err != nil {
		return nil, err
	}
	kubernetes, err := bundledVersion(cmd, m, c.KubernetesVersion)
	if err != nil {
		return nil, err
	}
	brought := map[string]string{}
	var order []string
	add := func(name, reference string) {
		brought[name] = reference
		order = append(order, name)
	}
	if m != nil {
		for _, i := range m.Images {
			add(i.Name, i.Reference)
		}
	} else {
		catalog, err := images.For(kubernetes, runtime.GOARCH, images.Flannel, images.Versions{})
		if err != nil {
			return nil, err
		}
		for _, a := range catalog.Assumptions() {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+a)
		}
		for _, i := range catalog.Images {
			add(i.Name, i.Reference)
		}
	}
	names, err := c.ImageNames(brought)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, component := range order {
		unused := component == images.Etcd && c.Etcd.External != nil ||
			component == images.CoreDNS && c.DNS.Disabled || component == images.Proxy && c.Proxy.Disabled
		if !unused {
			list = append(list, names[component])
		}
	}
	return list, nil
}

func printImages(cmd *cobra.Command, list []string, output string) error {
	out := cmd.OutOrStdout()
	doc := imageList{APIVersion: "output.kubeadm.k8s.io/v1alpha3", Kind: "Images", Images: list}
	switch output {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "    ")
		return e.Encode(doc)
	case "yaml":
		data, err := yaml.Marshal(doc)
		if err == nil {
			_, err = out.Write(data)
		}
		return err
	}
	for _, reference := range list {
		if _, err := fmt.Fprintln(out, reference); err != nil {
			return err
		}
	}
	return nil
}
