package installer

import (
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"airlift/bundle"
	"airlift/childprocess"
	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
)

// A Bundle is the file that a run installs from.
type Bundle struct {
	file     *bundle.File
	manifest *bundle.Manifest
	images   map[string]string // image references by component
	check    *fileCheck        // nil if the file is not checked
}

// OpenBundle reads the manifest of a bundle file.
func OpenBundle(f *bundle.File) (*Bundle, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	b := &Bundle{file: f, manifest: m, images: map[string]string{}}
	for _, i := range m.Images {
		b.images[i.Name] = i.Reference
	}
	return b, nil
}

// Configure sets in c what the bundle determines: the Kubernetes version, the
// pod network and the images. It refuses a version or a pod network that the
// bundle does not contain.
func (b *Bundle) Configure(c *config.Config) error {
	if err := config.CheckVersion(c.KubernetesVersion, b.manifest.KubernetesVersion); err != nil {
		return err
	}
	c.KubernetesVersion, c.NearestKnown = b.manifest.KubernetesVersion, b.manifest.NearestKnown
	switch c.CNI {
	case "":
		c.CNI = b.manifest.CNI
	case b.manifest.CNI, "none":
	default:
		return fault.New(fault.Usage, "to install another pod network yourself: --cni none",
			"--cni %q: this bundle's pod network is %q", c.CNI, b.manifest.CNI)
	}
	c.Images = b.images
	return nil
}

// checkAliases refuses a configured name of a component's image that the bundle has for another
// image: the name would point to the one that is imported last.
func (b *Bundle) checkAliases(names map[string]string) error {
	ids := map[string]string{} // by reference
	for _, i := range b.manifest.Images {
		ids[i.Reference] = i.Config.Digest
	}
	for _, component := range slices.Sorted(maps.Keys(names)) {
		own, name := b.images[component], names[component]
		if other, ok := ids[normalized(name)]; ok && other != ids[own] {
			return fault.New(fault.Usage, "remove imageRepository, or build the bundle with that image under the name of Kubernetes: --image SOURCE="+own,
				"the configuration names the image of %s %s, but the bundle has another image of this name", component, name)
		}
	}
	return nil
}

// CheckFile starts the check of the bundle file in the background. Preflight
// and the first step that uses the file wait for its result. Close stops it.
func (b *Bundle) CheckFile(ctx context.Context) { b.check = startFileCheck(ctx, b.file) }

// checked waits for the check and returns its result. It returns nil if no
// check was started.
func (b *Bundle) checked(ctx context.Context, console *Console) error {
	if b.check == nil {
		return nil
	}
	return b.check.wait(ctx, console)
}

// Close stops the check of the file.
func (b *Bundle) Close() {
	if b.check != nil {
		b.check.close()
	}
}

// references returns the bundle's image references for components. It leaves
// out components that the bundle does not contain.
func (b *Bundle) references(components ...string) []string {
	var refs []string
	for _, name := range components {
		if ref := b.images[name]; ref != "" {
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
	for _, e := range b.manifest.Entries {
		if dest := binaryPath(e.Name); dest != "" {
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
	if fileExists(h, adminConf) || fileExists(h, kubeletConf) {
		return fault.New(fault.Preflight,
			"run the bundle that installed this host. To upgrade the cluster to this version, on the first control plane: ./install upgrade apply, then on the others: ./install upgrade node. To install this version instead, remove the node first: ./install reset",
			"this host was installed from another bundle (this one has Kubernetes %s); these binaries differ:%s", b.manifest.KubernetesVersion, &list)
	}
	return fault.New(fault.Preflight,
		"run the bundle that started this installation, or first remove the installation: ./install reset",
		"an unfinished installation on this host is from another bundle (this one has Kubernetes %s); these binaries differ:%s", b.manifest.KubernetesVersion, &list)
}

// version returns the version of the component that contains an entry.
func (b *Bundle) version(entry string) string {
	for _, c := range b.manifest.Components {
		if slices.Contains(c.Entries, entry) {
			return c.Version
		}
	}
	return "another"
}

// versionTimeout limits how long a binary may take to print its version.
const versionTimeout = 5 * time.Second

var versionNumber = regexp.MustCompile(`\bv?[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*`)

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
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := childprocess.Command(ctx, h.Path(o.Path), "--version").Output()
	version := versionNumber.Find(out)
	if err != nil || version == nil {
		return sum
	}
	return fmt.Sprintf("%s (%s)", version, sum)
}
