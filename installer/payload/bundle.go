// Package payload reads the file that a run installs from: it checks the file, and brings the binaries,
// images, files and manifests in it to the host.
package payload

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/installer/cluster/apply"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A Bundle is the file that a run installs from.
type Bundle struct {
	File     *bundle.File
	Manifest *bundle.Manifest
	Images   map[string]string // image references by component
	check    *fileCheck        // nil if the file is not checked
	source   io.Closer         // of what a thin file does not have; nil before Attach
}

// OpenBundle reads the manifest of a bundle file.
func OpenBundle(f *bundle.File) (*Bundle, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	b := &Bundle{File: f, Manifest: m, Images: map[string]string{}}
	for _, i := range m.Images {
		b.Images[i.Name] = i.Reference
	}
	return b, nil
}

// Configure sets in c what the bundle determines: the Kubernetes version, the
// pod network and the images. It refuses a version or a pod network that the
// bundle does not contain.
func (b *Bundle) Configure(c *config.Config) error {
	if err := config.CheckVersion(c.KubernetesVersion, b.Manifest.KubernetesVersion); err != nil {
		return err
	}
	c.KubernetesVersion, c.NearestKnown = b.Manifest.KubernetesVersion, b.Manifest.NearestKnown
	switch c.CNI {
	case "":
		c.CNI = b.Manifest.CNI
	case b.Manifest.CNI, "none":
	default:
		return fault.New(fault.Usage, "--cni %q: this bundle's pod network is %q", c.CNI, b.Manifest.CNI).
			Hint("to install another pod network yourself: --cni none")
	}
	c.Images = b.Images
	return nil
}

// CheckAliases refuses a configured name of a component's image that the bundle has for another
// image: the name would point to the one that is imported last.
func (b *Bundle) CheckAliases(names map[string]string) error {
	ids := map[string]string{} // by reference
	for _, i := range b.Manifest.Images {
		ids[i.Reference] = i.Config.Digest
	}
	for _, component := range slices.Sorted(maps.Keys(names)) {
		own, name := b.Images[component], names[component]
		if other, ok := ids[Normalized(name)]; ok && other != ids[own] {
			return fault.New(fault.Usage, "the configuration names the image of %s %s, but the bundle has another image of this name", component, name).
				Hint("remove imageRepository, or build the bundle with that image under the name of Kubernetes: --image SOURCE=" + own)
		}
	}
	return nil
}

// CheckFile starts the check of the bundle file in the background. Preflight
// and the first step that uses the file wait for its result. Close stops it.
func (b *Bundle) CheckFile(ctx context.Context) { b.check = startFileCheck(ctx, b.File) }

// Checked waits for the check and returns its result. It returns nil if no
// check was started.
func (b *Bundle) Checked(ctx context.Context, console *workflow.Console) error {
	if b.check == nil {
		return nil
	}
	return b.check.wait(ctx, console)
}

// Close stops the check of the file, and closes the source of a thin file.
func (b *Bundle) Close() {
	if b.check != nil {
		b.check.close()
	}
	if b.source != nil {
		_ = b.source.Close()
	}
}

// References returns the bundle's image references for components. It leaves
// out components that the bundle does not contain.
func (b *Bundle) References(components ...string) []string {
	var refs []string
	for _, name := range components {
		if ref := b.Images[name]; ref != "" {
			refs = append(refs, ref)
		}
	}
	return refs
}

// CheckHost refuses a host that Airlift installed from another bundle. An
// upgrade or downgrade would replace binaries of running components, and would
// not restart them in the order that an upgrade needs. Different images are
// allowed: a bundle may contain additional ones.
func (b *Bundle) CheckHost(ctx context.Context, h *host.Host) error {
	var wanted []host.Binary
	entries := map[string]string{} // entry names by path
	for _, e := range b.Manifest.Entries {
		if dest := node.BinaryPath(e.Name); dest != "" {
			wanted = append(wanted, host.Binary{Path: dest, SHA256: e.SHA256})
			entries[dest] = e.Name
		}
	}
	others, err := h.OtherBinaries(wanted...)
	if err != nil || len(others) == 0 {
		return err
	}
	var list strings.Builder
	for _, o := range others {
		fmt.Fprintf(&list, "\n  - %s is %s, this bundle has %s", o.Path, installedVersion(ctx, h, o), b.version(entries[o.Path]))
	}
	if node.FileExists(h, node.AdminConf) || node.FileExists(h, node.KubeletConf) {
		return fault.New(fault.Preflight,
			"this host was installed from another bundle (this one has Kubernetes %s); these binaries differ:%s", b.Manifest.KubernetesVersion, &list).
			Hint("run the bundle that installed this host. To upgrade the cluster to this version, on the first control plane: ./install upgrade apply, then on the others: ./install upgrade node. To install this version instead, remove the node first: ./install reset")
	}
	return fault.New(fault.Preflight,
		"an unfinished installation on this host is from another bundle (this one has Kubernetes %s); these binaries differ:%s", b.Manifest.KubernetesVersion, &list).
		Hint("run the bundle that started this installation, or first remove the installation: ./install reset")
}

// version returns the version of the component that contains an entry.
func (b *Bundle) version(entry string) string {
	for _, c := range b.Manifest.Components {
		if slices.Contains(c.Entries, entry) {
			return c.Version
		}
	}
	return "another"
}

// installedVersion returns what an installed binary prints for --version, if it
// supports that flag, and the start of its SHA-256 digest.
func installedVersion(ctx context.Context, h *host.Host, o host.OtherBinary) string {
	sum := fmt.Sprintf("sha256 %.12s…", o.SHA256)
	if !o.Complete {
		return "not complete (" + sum + ")"
	}
	if !slices.Contains([]string{"kubelet", "containerd", "runc"}, path.Base(o.Path)) {
		return sum
	}
	version := node.PrintedVersion(ctx, h.Path(o.Path))
	if version == "" {
		return sum
	}
	return fmt.Sprintf("%s (%s)", version, sum)
}

// Document reads an entry of the bundle into memory.
func (b *Bundle) Document(ctx context.Context, entry string) ([]byte, error) {
	return b.File.Read(ctx, entry)
}

// ID identifies the bundle's contents: the sha256 of its manifest.json.
func (b *Bundle) ID() string { return b.File.ManifestSHA256() }

// ManifestOf returns one of the site's manifests with the facts that the bundle lists.
func (b *Bundle) ManifestOf(listed bundle.SiteManifest) apply.Manifest {
	m := apply.Manifest{Name: listed.Name, Chart: listed.Chart, Namespace: listed.Namespace, Kubernetes: b.Manifest.KubernetesVersion}
	if b.File != nil {
		m.Bundle, m.File = b.ID(), path.Base(b.File.Path())
	}
	for _, i := range b.SiteImages() {
		m.SiteImages = append(m.SiteImages, i.Reference)
	}
	for _, e := range b.Manifest.Entries {
		if e.Name == listed.Entry() {
			m.SHA256 = e.SHA256
		}
	}
	return m
}

// HasImage reports whether the bundle has an image, by a name as in a pod.
func (b *Bundle) HasImage(name string) bool {
	full, err := release.Normalize(name)
	return slices.ContainsFunc(b.Manifest.Images, func(i bundle.Image) bool {
		other, failed := release.Normalize(i.Reference)
		return i.Reference == name || err == nil && failed == nil && other == full
	})
}

// AcceptsBase refuses a base that is not the bundle's base.
func (b *Bundle) AcceptsBase(base *Bundle) error {
	want := b.Manifest.Base
	switch {
	case want == nil:
		return fault.New(fault.Usage, "--base %q has no effect: this file has all layers of its images", base.File.Path()).Hint("remove --base")
	case base.ID() != want.ManifestSHA256:
		return fault.New(fault.Usage, "--base %q is another bundle: the sha256 of its manifest is %s, and this file needs %s", base.File.Path(), base.ID(), want.ManifestSHA256).
			Hint("use the bundle that was the base of this file")
	}
	return nil
}

// Normalized returns the full form of an image's name, or name itself if it is not an image's name.
func Normalized(name string) string {
	full, err := release.Normalize(name)
	if err != nil {
		return name
	}
	return full
}
