package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachinery "k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	"airlift/bundle"
	"airlift/cmd/output"
	"airlift/images/release"
	"airlift/installer/host"
	"airlift/internal/fault"
)

// versions is the output of the version command in JSON and YAML.
type versions struct {
	ClientVersion apimachinery.Info `json:"clientVersion"` // kubeadm's only field
	Installer     string            `json:"installer"`
	Kubernetes    string            `json:"kubernetes"`
	// Only lists what an additional bundle has: "images", "manifests". Kubernetes is the
	// version that it was built for.
	Only []string `json:"only,omitempty"`
	// NearestKnown is the nearest release that was known when the bundle was built, if
	// Kubernetes is newer.
	NearestKnown string            `json:"nearestKnown,omitempty"`
	Platform     string            `json:"platform"`
	Components   map[string]string `json:"components"`
	Images       []string          `json:"images"`
}

// clientVersion returns what kubeadm of this Kubernetes version prints about itself. The
// commit and the build date are not known here and stay empty.
func clientVersion(kubernetes, platform string) apimachinery.Info {
	info := apimachinery.Info{GitVersion: kubernetes, GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: platform}
	if v, err := utilversion.ParseSemantic(kubernetes); err == nil {
		info.Major, info.Minor = fmt.Sprint(v.Major()), fmt.Sprint(v.Minor())
	}
	return info
}

func newVersionCmd() *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of this installer and of its components",
		Example: "  ./install version\n  ./install version -o short",
		RunE:    func(cmd *cobra.Command, _ []string) error { return printVersion(cmd, format) },
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "short (only the version of Kubernetes), json or yaml")
	return cmd
}

func printVersion(cmd *cobra.Command, format string) error {
	switch format {
	case "", "short", "json", "yaml":
	default:
		return fault.New(fault.Usage, "unknown output format %q: use short, json or yaml", format)
	}
	out := cmd.OutOrStdout()
	if format != "" {
		out = output.Documents(out)
	} else {
		fmt.Fprintf(out, "airlift %s\n", version)
	}
	f, err := openBundle()
	if format == "" && own.path == host.CommandPath && errors.Is(err, bundle.ErrNoPayload) {
		return nil // the command airlift of a node, whose file is not there any more
	}
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	if format == "" && m.Additional() {
		fmt.Fprintf(out, "only %s, for Kubernetes %s\n", strings.Join(m.Only, " and "), m.KubernetesVersion)
	}
	if format == "" && m.NearestKnown != "" {
		fmt.Fprintln(out, release.Newer(m.KubernetesVersion, m.NearestKnown))
	}
	v := versions{
		ClientVersion: clientVersion(m.KubernetesVersion, m.Platform), Installer: version, Kubernetes: m.KubernetesVersion, Only: m.Only,
		NearestKnown: m.NearestKnown, Platform: m.Platform, Components: map[string]string{},
	}
	for _, c := range m.Components {
		v.Components[c.Name] = c.Version
		if format == "" {
			fmt.Fprintf(out, "%s %s\n", c.Name, c.Version)
		}
	}
	for _, i := range m.Images {
		v.Images = append(v.Images, i.Reference)
		if format == "" {
			fmt.Fprintln(out, i.Reference)
		}
	}
	var data []byte
	switch format {
	case "short":
		_, err = fmt.Fprintln(out, m.KubernetesVersion)
	case "json":
		data, err = json.MarshalIndent(v, "", "  ")
		data = append(data, '\n')
	case "yaml":
		data, err = yaml.Marshal(v)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}
