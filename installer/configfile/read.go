// Package configfile prints, validates and converts configuration files in kubeadm's format.
package configfile

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/host/detection"
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
	_, err := r.read(path, anyHost)
	return err
}

// read reads a file with documents for any command, completes them for a
// host and validates them. It sets API to the version in which the file can be
// written.
func (r *Reader) read(path string, facts func(detection.Options) config.Facts) (*config.File, error) {
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
	version, err := r.version(m, asked)
	if err != nil {
		return nil, err
	}
	cni := release.Flannel
	if m != nil {
		cni = m.CNI
	}
	f.API = config.NewerAPI(f.API, config.APIVersion(version))
	var problems []error
	if c := f.Init; c != nil {
		c.CNI, c.KubernetesVersion = cni, version
		c.Facts = facts(detection.Options{
			NodeIP: c.LocalAPIEndpoint.ChosenAddress(), ForOtherHost: true, Networking: c.Networking,
		})
		c.CompleteInit()
		for _, w := range c.Warnings() {
			fmt.Fprintln(r.Messages, "warning: "+w)
		}
		problems = append(problems, c.ValidateInit())
	}
	if c := f.Join; c != nil {
		c.KubernetesVersion = version
		c.Facts = facts(detection.Options{NodeIP: c.LocalAPIEndpoint.ChosenAddress(), ForOtherHost: true})
		c.CompleteJoin()
		problems = append(problems, c.ValidateJoin())
	}
	if reset := f.Reset; reset != nil {
		reset.Complete()
		problems = append(problems, reset.ValidateReset())
	}
	if f.Upgrade != nil {
		problems = append(problems, f.Upgrade.Validate())
	}
	return f, errors.Join(problems...)
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
