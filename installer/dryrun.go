package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// DryRunInit does what init would do, into a new folder: the host's files
// below it at their paths, the cluster's objects in its folder "cluster".
// Nothing else is touched.
func (n *Node) DryRunInit(ctx context.Context) error {
	return n.dryRun(ctx, "init", func() error { return Run(ctx, n.Console, n.dryInit(), n.drySkips()) })
}

// DryRunPhase does the same for one of init's phases.
func (n *Node) DryRunPhase(ctx context.Context, phase string) error {
	steps := n.dryInit()
	if _, ok := find(steps, strings.TrimSuffix(phase, "/all")); !ok {
		n.Console.Summary(fmt.Sprintf("The phase %s writes no files and no objects: with --dry-run it does nothing.\n", phase))
		n.Console.close()
		return nil
	}
	return n.dryRun(ctx, "init-phase", func() error { return RunPhase(ctx, n.Console, steps, phase) })
}

// dryRun turns the host into a new folder while run runs. The variables that
// say where kubeadm makes its own (KUBEADM_INIT_DRYRUN_DIR and so on) say it
// here, too.
func (n *Node) dryRun(ctx context.Context, what string, run func() error) error {
	command, _, _ := strings.Cut(what, "-")
	where := cmp.Or(os.Getenv("KUBEADM_"+strings.ToUpper(command)+"_DRYRUN_DIR"), os.TempDir())
	if err := host.OutputDir(where, 0o700); err != nil {
		return fmt.Errorf("creating a directory in %s for the dry run: %w", where, err)
	}
	dir, err := os.MkdirTemp(where, "airlift-"+what+"-dry-run-")
	if err != nil {
		return err
	}
	n.before = n.Host
	if n.Host, err = host.OpenFolder(dir); err != nil {
		return err
	}
	n.Console.Summary(fmt.Sprintf("Nothing was changed. What %s would write is in\n\n    %s\n\nIt may hold new private keys: remove it when you have read it.\n", strings.Replace(what, "-", " ", 1), dir))
	if err := run(); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// dryInit is what of Init can be done without touching host or cluster.
func (n *Node) dryInit() []Step {
	real := n.Init()
	same := func(name string) Step {
		s, _ := find(real, name)
		return s
	}
	objects := func(phase, name, doc string, build func(*config.Config) ([]runtime.Object, error)) Step {
		return Step{Name: name, Doc: doc, Run: n.dryObjects(phase+"-"+name, build)}
	}
	addons := same("addon")
	addons.Steps = nil
	for _, a := range []string{"coredns", "kube-proxy", "flannel"} {
		addons.Steps = append(addons.Steps, objects("addon", a, "the objects of "+a, func(*config.Config) ([]runtime.Object, error) { return n.addonObjects(a) }))
	}
	return []Step{
		{Name: "preflight", Doc: "check this host", Run: func(ctx context.Context) error {
			folder := n.Host
			n.Host = n.before
			defer func() { n.Host = folder }()
			return n.preflight(ctx)
		}},
		{Name: "runtime", Doc: "containerd's settings and unit", Run: func(context.Context) error { return n.writeContainerd() }},
		same("certs"), same("kubeconfig"), same("etcd"), same("control-plane"),
		{Name: "kubelet-start", Doc: "the kubelet's settings and unit", Run: func(context.Context) error {
			settings, err := render.KubeletConfig(n.Config)
			if err != nil {
				return err
			}
			return n.writeKubelet(settings, false)
		}},
		{Name: "wait-control-plane", Doc: "the administrators' rights", Run: n.dryObjects("wait-control-plane", func(*config.Config) ([]runtime.Object, error) {
			return []runtime.Object{render.ClusterAdmins()}, nil
		})},
		{Name: "upload-config", Doc: "the stored configuration", Steps: []Step{
			objects("upload-config", "kubeadm", "the ClusterConfiguration", render.UploadClusterConfig),
			objects("upload-config", "kubelet", "the KubeletConfiguration", render.UploadKubeletConfig),
		}},
		{Name: "bootstrap-token", Doc: "what lets nodes join", Run: n.dryObjects("bootstrap-token", n.bootstrapObjects)},
		addons,
	}
}

// drySkips are the phases to skip that a dry run has.
func (n *Node) drySkips() []string {
	steps := n.dryInit()
	return slices.DeleteFunc(slices.Clone(n.Config.SkipPhases), func(name string) bool {
		_, ok := find(steps, name)
		return !ok
	})
}

// dryObjects writes the objects of a phase as one manifest.
func (n *Node) dryObjects(phase string, build func(*config.Config) ([]runtime.Object, error)) func(context.Context) error {
	return func(context.Context) error {
		objects, err := build(n.Config)
		if err != nil || len(objects) == 0 {
			return err
		}
		data, err := render.Manifest(objects...)
		if err != nil {
			return err
		}
		return n.write(pki.File{Path: "/cluster/" + phase + ".yaml", Data: data, Mode: 0o600})
	}
}

// bootstrapObjects are what nodes need to join, but for the token.
func (n *Node) bootstrapObjects(c *config.Config) ([]runtime.Object, error) {
	ca, err := fs.ReadFile(n.root(), strings.TrimPrefix(path.Join(c.CertificatesDir, "ca.crt"), "/"))
	if err != nil {
		return nil, err
	}
	return append(render.BootstrapRBAC(c), render.ClusterInfo(c, ca)...), nil
}

// layered shows the first folder that has a file, so that a dry run sees what
// it has written over what the host has.
type layered []fs.FS

func (l layered) Open(name string) (fs.File, error) {
	err := fs.ErrNotExist
	for _, layer := range l {
		var f fs.File
		if f, err = layer.Open(name); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, err
}
