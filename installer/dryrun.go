package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/render"
)

// DryRunInit does what init would do, into a new folder: the host's files
// below it at their paths, the cluster's objects in its folder "cluster".
// Nothing else is touched.
func (n *Node) DryRunInit(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "airlift-init-dry-run-")
	if err != nil {
		return err
	}
	here := n.Host
	n.role = preflight.Init
	steps := []Step{
		{Name: "preflight", Doc: "check this host", Run: n.preflight},
		{Name: "runtime", Doc: "containerd's settings and unit", Run: func(context.Context) error {
			if n.Host, err = host.Open(dir); err != nil {
				return err
			}
			n.before = here
			return n.writeContainerd()
		}},
		{Name: "certs", Doc: "certificates", Run: n.certs},
		{Name: "kubeconfig", Doc: "kubeconfig files", Run: n.kubeconfig},
		{Name: "etcd", Doc: "the static pod of etcd", Run: n.etcd},
		{Name: "control-plane", Doc: "the control plane's static pods", Run: n.controlPlane},
		{Name: "kubelet-start", Doc: "the kubelet's settings and unit", Run: func(context.Context) error {
			settings, err := render.KubeletConfig(n.Config)
			if err != nil {
				return err
			}
			return n.writeKubelet(settings, false)
		}},
		{Name: "cluster", Doc: "the objects that would be stored in the cluster", Run: n.dryRunObjects},
	}
	n.Console.Summary(fmt.Sprintf("Nothing was changed. What init would write is in\n\n    %s\n\nIt holds new private keys: remove it when you have read it.\n", dir))
	if err := Run(ctx, n.Console, steps, nil); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	// The ledger is of things to undo; here there are none.
	return os.RemoveAll(filepath.Join(dir, host.StateDir))
}

// dryRunObjects writes the cluster's objects in the order they would be
// applied.
func (n *Node) dryRunObjects(ctx context.Context) error {
	ca, err := fs.ReadFile(n.root(), strings.TrimPrefix(path.Join(n.Config.CertificatesDir, "ca.crt"), "/"))
	if err != nil {
		return err
	}
	objects := []runtime.Object{render.ClusterAdmins()}
	for _, part := range []func(*config.Config) ([]runtime.Object, error){
		render.UploadConfig,
		func(c *config.Config) ([]runtime.Object, error) {
			return append(render.BootstrapRBAC(), render.ClusterInfo(c, ca)...), nil
		},
		render.CoreDNS, render.KubeProxy, n.networkObjects,
	} {
		more, err := part(n.Config)
		if err != nil {
			return err
		}
		objects = append(objects, more...)
	}
	for i, o := range objects {
		data, err := render.YAML(o)
		if err != nil {
			return err
		}
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("/cluster/%02d-%s-%s.yaml", i+1, strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind),
			strings.ReplaceAll(m.GetName(), ":", "-"))
		if err := n.write(pki.File{Path: name, Data: data, Mode: 0o600}); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) networkObjects(c *config.Config) ([]runtime.Object, error) {
	if c.CNI != "flannel" {
		return nil, nil
	}
	return render.Flannel(c)
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
