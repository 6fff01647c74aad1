package installer

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/bundle"
	"airlift/fault"
	"airlift/images"
	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/patches"
	"airlift/installer/pki"
	"airlift/installer/preflight"
)

// Node is this host on its way to becoming a node, or back. Its methods are
// the steps; what they learn from each other is in its fields.
type Node struct {
	Config  *config.Config
	Host    *host.Host
	Bundle  *bundle.File // nil for reset
	Console *Console
	// UserToken says that the token was given, not made.
	UserToken bool
	// Single says that one phase runs alone: what it needs of earlier ones
	// has to be on the host.
	Single bool
	// LookOnly says that nothing will be changed.
	LookOnly bool
	// SkipFileCheck leaves out CheckFile: the user has compared the file.
	SkipFileCheck bool
	// SkipTokenPrint and SkipCertificateKeyPrint keep secrets out of the
	// closing words.
	SkipTokenPrint, SkipCertificateKeyPrint bool
	// Kubeconfig is how to reach the cluster, where it is not the host's
	// own; KubeconfigDir is where the kubeconfig phase writes.
	Kubeconfig, KubeconfigDir string
	// RenderDir and PrintManifest make the add-ons manifests instead of
	// objects in the cluster.
	RenderDir     string
	PrintManifest bool
	// Resetting is what reset is to do.
	Resetting config.Reset

	before         *host.Host // dry run: the host itself, while Host is a folder
	manifest       *bundle.Manifest
	brought        map[string]string // the bundle's image references by component
	patches        *patches.Set
	file           *fileCheck // nil where the file is not checked
	stopFileCheck  context.CancelFunc
	payload        *payload
	stop           context.CancelFunc // ends the payload's stream
	store          *store.Store
	role           preflight.Role // what this host is to become
	looked         bool           // look has been here
	unfit          error          // what is wrong with the host's own container runtime
	foreign        bool           // containerd is the host's own, not ours
	kubeletFit     bool           // join: checkKubelet has found nothing
	runtimeVersion string         // of a foreign containerd
	imageDir       string         // where a foreign containerd unpacks images
	sandboxImage   string         // the pause image a foreign containerd asks for, if it tells
	pods           []string       // that a foreign containerd has
	rerun          bool           // an earlier run of ours has got at least to the certificates
	changes        int            // what this run changed on the host and in the cluster
	client         *cluster.Client
	token          string                              // the one the join command shows
	found          *cluster.Found                      // join: the cluster, trusted
	kubelet        []byte                              // join: the cluster's KubeletConfiguration
	kubeProxy      *kubeproxyv1.KubeProxyConfiguration // join: the cluster's, if it has one

	held         []pki.File       // static pods that are still to be put in place
	placed       time.Time        // when etcd and the API server were
	kubeletBegan time.Time        // when one that init has started was healthy
	late         []runtime.Object // of the cluster, to be created when that is older

	clusterVersion   string    // join: what the cluster runs
	lastControlPlane bool      // reset: the cluster ends with this host
	leftImages       []string  // reset: image names that are left, with the reasons
	plan             host.Plan // reset: what goes and what stays
}

// UseBundle reads the bundle's manifest, and from it what version to install
// and which images there are.
func (n *Node) UseBundle(f *bundle.File) error {
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	n.Bundle, n.manifest = f, m
	if err := config.CheckVersion(n.Config.KubernetesVersion, m.KubernetesVersion); err != nil {
		return err
	}
	n.Config.KubernetesVersion = m.KubernetesVersion
	switch n.Config.CNI {
	case "":
		n.Config.CNI = m.CNI
	case m.CNI, "none":
	default:
		return fault.New(fault.Usage, "it can be left to you with --cni none",
			"--cni %q: this bundle's pod network is %q", n.Config.CNI, m.CNI)
	}
	n.brought = map[string]string{}
	for _, i := range m.Images {
		n.brought[i.Name] = i.Reference
	}
	n.Config.Images = n.brought
	return nil
}

// NameImages gives the bundle's images the names that the completed Config
// asks for, and finds out whether the bundle has what it asks for.
func (n *Node) NameImages() error {
	needed := maps.Clone(n.brought)
	maps.DeleteFunc(needed, func(component, _ string) bool {
		switch n.role {
		case preflight.Join:
			return !images.Worker(component)
		case preflight.JoinControlPlane:
			return component == "coredns" // the cluster has its own
		}
		return false
	})
	names, err := n.Config.ImageNames(needed)
	if err != nil {
		return err
	}
	n.Config.Images = maps.Clone(n.brought)
	maps.Copy(n.Config.Images, names)
	return nil
}

// aliases are the names by which Kubernetes will ask for the bundle's images,
// by the bundle's own names, where they differ.
func (n *Node) aliases() map[string]string {
	names := map[string]string{}
	for component, reference := range n.brought {
		if name := n.Config.Images[component]; name != reference {
			names[reference] = name
		}
	}
	return names
}

// UsePatches reads the folder that the Config names.
func (n *Node) UsePatches() error {
	if n.Config.Patches == "" {
		return nil
	}
	set, warnings, err := patches.Load(n.Config.Patches)
	for _, w := range warnings {
		n.Console.Warn("%s", w)
	}
	n.patches = set
	return err
}

// skips says whether a phase is left out, itself or with the whole that it is
// a part of.
func (n *Node) skips(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return slices.Contains(n.Config.SkipPhases, name) || slices.Contains(n.Config.SkipPhases, first)
}

// Close ends what runs in the background and waits for it.
func (n *Node) Close() {
	if n.file != nil {
		n.stopFileCheck()
		<-n.file.done
	}
	if n.stop != nil {
		n.stop()
		<-n.payload.done
	}
	if n.store != nil {
		_ = n.store.Close()
	}
}

// changed counts n changes.
func (n *Node) changed(yes bool) {
	if yes {
		n.changes++
	}
}

// write puts files on the host and counts what changed.
func (n *Node) write(files ...pki.File) error {
	for _, f := range files {
		var changed bool
		var err error
		if f.Link != "" {
			changed, err = n.Host.WriteSymlink(f.Path, f.Link)
		} else {
			changed, err = n.Host.WriteFile(f.Path, f.Data, f.Mode)
		}
		if err != nil {
			return err
		}
		if changed {
			n.Console.Debug(1, "wrote %s", f.Path)
		}
		n.changed(changed)
	}
	return nil
}

// applied counts and, when asked, names what changed in the cluster.
func (n *Node) applied(changed []string, err error) error {
	for _, c := range changed {
		n.Console.Debug(1, "applied %s", c)
	}
	n.changes += len(changed)
	return err
}

// root shows the host's files to the packages that only compute.
func (n *Node) root() fs.FS {
	files := layered{os.DirFS(n.Host.Path("/"))}
	if n.before != nil {
		files = append(files, os.DirFS(n.before.Path("/")))
	}
	return files
}

// exists says whether a file is there on the host.
func (n *Node) exists(path string) bool {
	_, err := os.Stat(n.Host.Path(path))
	return err == nil
}

// report shows a wait's state where somebody asked for detail.
func (n *Node) report(state string) { n.Console.Debug(1, "%s", state) }

// images are the bundle's images that this node needs. A worker does without
// the control plane's.
func (n *Node) images() []bundle.Image {
	var wanted []bundle.Image
	for _, i := range n.manifest.Images {
		if n.role != preflight.Join || images.Worker(i.Name) {
			wanted = append(wanted, i)
		}
	}
	return wanted
}

// references are the bundle's images by component, leaving out what it lacks.
func (n *Node) references(names ...string) []string {
	var refs []string
	for _, name := range names {
		if ref := n.brought[name]; ref != "" {
			refs = append(refs, ref)
		}
	}
	return refs
}

// wantBinary says which programs this host gets from the bundle: all, except
// a container runtime where the host has one of its own, and kubectl on a
// worker, which has nothing to use it with.
func (n *Node) wantBinary(entry string) bool {
	switch name := strings.TrimPrefix(entry, bundle.BinDir); {
	case name == "kubectl":
		return n.role != preflight.Join
	case name == "runc", name == "ctr", strings.HasPrefix(name, "containerd"):
		return !n.foreign
	}
	return true
}

// withAPI gives a step a client where no earlier one, perhaps skipped, has
// left one: the administrator's on a control plane, the kubelet's on a worker.
func (n *Node) withAPI(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		if n.client == nil && n.Kubeconfig != "" && n.Kubeconfig != adminConf {
			n.client, err = cluster.Load(n.Kubeconfig, "")
		} else if n.client == nil && n.exists(adminConf) {
			n.client, err = n.loadClient(adminConf, n.Config.LocalURL())
		} else if n.client == nil {
			n.client, err = n.loadClient(kubeletConf, "")
		}
		if err != nil {
			return err
		}
		return run(ctx)
	}
}

func (n *Node) loadClient(kubeconfig, server string) (*cluster.Client, error) {
	c, err := cluster.Load(n.Host.Path(kubeconfig), server)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", kubeconfig, err)
	}
	c.SetTimeout(n.Config.Timeouts.KubernetesAPICall)
	return c, nil
}
