package initcluster

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// DryRun writes what init would write into a new directory: the host's
// files at their paths below it, and the cluster's objects below "cluster". It
// changes nothing else.
func DryRun(ctx context.Context, p *phases.Plan, o phases.InitOptions, h *host.Host, c *workflow.Console) error {
	return phases.InDirectory("init", h, c, func(m *node.Machine) error {
		i := newInit(p, o, m)
		defer i.Close()
		steps := i.drySteps()
		return workflow.Run(ctx, c, steps, phases.OnlyKnown(steps, p.Config.SkipPhases))
	})
}

// DryRunPhase does the same for one phase of init.
func DryRunPhase(ctx context.Context, p *phases.Plan, o phases.InitOptions, h *host.Host, c *workflow.Console, phase string) error {
	if _, ok := workflow.Find(newInit(p, o, nil).drySteps(), strings.TrimSuffix(phase, "/all")); !ok {
		c.Summary(fmt.Sprintf("The phase %s writes no files and no objects: with --dry-run it does nothing.\n", phase))
		c.Close()
		return nil
	}
	return phases.InDirectory("init-phase", h, c, func(m *node.Machine) error {
		i := newInit(p, o, m)
		defer i.Close()
		return workflow.RunPhase(ctx, c, i.drySteps(), phase)
	})
}

// drySteps returns the steps that can run without changing the host and without a
// cluster.
func (i *Init) drySteps() []workflow.Step {
	real := i.Steps()
	same := func(name string) workflow.Step {
		s, _ := workflow.Find(real, name)
		return s
	}
	objects := func(phase, name, doc string, build func(*config.Config) ([]runtime.Object, error)) workflow.Step {
		return workflow.Step{Name: name, Doc: doc, Run: i.dryObjects(phase+"-"+name, build)}
	}
	addons := same("addon")
	addons.Steps = nil
	for _, a := range []string{"coredns", "kube-proxy", "flannel"} {
		addons.Steps = append(addons.Steps, objects("addon", a, "the objects of "+a, func(*config.Config) ([]runtime.Object, error) { return i.addons.Objects(a) }))
	}
	return []workflow.Step{
		same("preflight"),
		{Name: "files", Doc: "the site's own files", Run: i.site.WriteAll, Empty: same("files").Empty},
		{Name: "runtime", Doc: "containerd's configuration and unit", Run: func(context.Context) error { return i.runtimeStep.WriteFiles() }},
		same("certs"), same("kubeconfig"), same("etcd"), same("control-plane"),
		{Name: "kubelet-start", Doc: "the kubelet's configuration and unit", Run: func(context.Context) error {
			settings, err := render.KubeletConfig(i.node.Config)
			if err != nil {
				return err
			}
			return i.kubelet.WriteFiles(settings)
		}},
		{Name: "wait-control-plane", Doc: "the ClusterRoleBinding of the administrators", Run: i.dryObjects("wait-control-plane", func(*config.Config) ([]runtime.Object, error) {
			return []runtime.Object{render.ClusterAdmins()}, nil
		})},
		{Name: "upload-config", Doc: "the stored configuration", Steps: []workflow.Step{
			objects("upload-config", "kubeadm", "the ClusterConfiguration", render.UploadClusterConfig),
			objects("upload-config", "kubelet", "the KubeletConfiguration", render.UploadKubeletConfig),
		}},
		{Name: "bootstrap-token", Doc: "the objects that let nodes join", Run: i.dryObjects("bootstrap-token", i.credentials.bootstrapObjects)},
		addons,
		{Name: "manifests", Doc: "the site's own manifests", Run: i.dryManifests, Empty: same("manifests").Empty},
	}
}

// dryManifests writes the site's manifests.
func (i *Init) dryManifests(ctx context.Context) error {
	for _, m := range i.node.Plan.SiteManifests() {
		data, err := i.manifests.Document(ctx, m.Entry())
		if err != nil {
			return err
		}
		if err := i.Write(pki.File{Path: "/cluster/manifests-" + m.Name + ".yaml", Data: data, Mode: 0o600}); err != nil {
			return err
		}
	}
	return nil
}

// dryObjects returns a step that writes the objects of a phase as one manifest.
func (i *Init) dryObjects(phase string, build func(*config.Config) ([]runtime.Object, error)) func(context.Context) error {
	return func(context.Context) error {
		objects, err := build(i.node.Config)
		if err != nil || len(objects) == 0 {
			return err
		}
		data, err := render.Manifest(objects...)
		if err != nil {
			return err
		}
		return i.Write(pki.File{Path: "/cluster/" + phase + ".yaml", Data: data, Mode: 0o600})
	}
}
