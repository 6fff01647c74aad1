// Package configfile prints, validates and converts configuration files in kubeadm's format.
package configfile

import (
	"fmt"
	"io"
	"slices"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// A Reader reads configuration files for the Kubernetes version of a bundle.
type Reader struct {
	// Bundle returns the manifest of the bundle, or nil without a bundle.
	Bundle   func() (*bundle.Manifest, error)
	Messages io.Writer // for warnings and notes
}

// Validate returns all errors of a file.
func (r *Reader) Validate(path string) error {
	_, err := r.read(path, anyHost, true)
	return err
}

// read reads a file with documents for any command, completes them for a
// host and validates them, on request with what the kubelet and the API server make of them. It sets API to the version in which
// the file can be written.
func (r *Reader) read(path string, host Host, components bool) (*config.File, error) {
	f, warnings, err := config.Read(path)
	for _, w := range warnings {
		fmt.Fprintln(r.Messages, "warning: "+w)
	}
	if err != nil {
		return nil, err
	}
	asked := ""
	if f.Init != nil {
		asked = f.Init.KubernetesVersion
	}
	m, err := r.Bundle()
	if err != nil {
		return nil, err
	}
	k := Checker{Target: TargetOf(m), Host: host}
	if m == nil {
		if k.Version, err = r.version(nil, asked); err != nil {
			return nil, err
		}
	}
	f.API = config.NewerAPI(f.API, config.APIVersion(k.Version))
	k.Values(f)
	if components && f.Init != nil {
		k.Components(f, nil)
	}
	for _, w := range k.Warnings {
		fmt.Fprintln(r.Messages, "warning: "+w)
	}
	return f, config.Wrong(k.Wrong)
}

// newestKnown returns the newest Kubernetes minor version in the image catalog,
// with patch version 0.
func newestKnown() string { return release.Newest() + ".0" }

// version returns the Kubernetes version for a bundle's manifest, or nil.
// With a bundle it is the bundle's, and asked must match it. Without a bundle
// it is asked, or else the newest known version, and a note names it.
func (r *Reader) version(m *bundle.Manifest, asked string) (string, error) {
	if m != nil {
		return m.KubernetesVersion, config.CheckVersion(asked, m.KubernetesVersion)
	}
	taken := newestKnown()
	if v, err := utilversion.ParseSemantic(strings.TrimPrefix(asked, "v")); err == nil {
		taken = "v" + v.String()
		if c := (config.Cluster{KubernetesVersion: taken}); v.Major() != 1 || !slices.Contains(release.Known(), fmt.Sprintf("v1.%d", c.Minor())) {
			return "", fault.New(fault.Usage, "Kubernetes %s is not known to this installer", asked).Hint("known versions: " + strings.Join(release.Known(), ", "))
		}
	} else if err := config.CheckVersion(asked, taken); err != nil {
		return "", err
	}
	fmt.Fprintf(r.Messages, "note: this file contains no Kubernetes; assuming %s\n", taken)
	return taken, nil
}
