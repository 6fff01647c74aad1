package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// inDirectory does the dry run of what: run writes into a new directory instead
// of the host. KUBEADM_INIT_DRYRUN_DIR and kubeadm's other variables of this
// kind name the parent of that directory.
func inDirectory(what string, h *host.Host, c *Console, run func(*machine) error) error {
	command, _, _ := strings.Cut(what, "-")
	where := cmp.Or(os.Getenv("KUBEADM_"+strings.ToUpper(command)+"_DRYRUN_DIR"), os.TempDir())
	output, err := host.NewDirectory(where, "airlift-"+what+"-dry-run-")
	if err != nil {
		return fmt.Errorf("creating a directory in %s for the dry run: %w", where, err)
	}
	c.Summary(fmt.Sprintf("Nothing was changed. The files that %s would write are in\n\n    %s\n\nThey may contain new private keys: remove the directory after you have read them.\n", strings.Replace(what, "-", " ", 1), output.Path("/")))
	if err := run(&machine{host: output, existing: h, console: c}); err != nil {
		return errors.Join(err, output.RemoveDirectory())
	}
	return nil
}

// onlyKnown returns the names in skip that exist among the steps.
func onlyKnown(steps []Step, skip []string) []string {
	return slices.DeleteFunc(slices.Clone(skip), func(name string) bool {
		_, ok := find(steps, name)
		return !ok
	})
}

// DryRunInit writes what init would write into a new directory: the host's
// files at their paths below it, and the cluster's objects below "cluster". It
// changes nothing else.
func DryRunInit(ctx context.Context, p *Plan, o InitOptions, h *host.Host, c *Console) error {
	return inDirectory("init", h, c, func(m *machine) error {
		i := newInit(p, o, m)
		defer i.Close()
		steps := i.drySteps()
		return Run(ctx, c, steps, onlyKnown(steps, p.config.SkipPhases))
	})
}

// DryRunInitPhase does the same for one phase of init.
func DryRunInitPhase(ctx context.Context, p *Plan, o InitOptions, h *host.Host, c *Console, phase string) error {
	if _, ok := find(newInit(p, o, nil).drySteps(), strings.TrimSuffix(phase, "/all")); !ok {
		c.Summary(fmt.Sprintf("The phase %s writes no files and no objects: with --dry-run it does nothing.\n", phase))
		c.close()
		return nil
	}
	return inDirectory("init-phase", h, c, func(m *machine) error {
		i := newInit(p, o, m)
		defer i.Close()
		return RunPhase(ctx, c, i.drySteps(), phase)
	})
}

// drySteps returns the steps that can run without changing the host and without a
// cluster.
func (i *Init) drySteps() []Step {
	real := i.Steps()
	same := func(name string) Step {
		s, _ := find(real, name)
		return s
	}
	objects := func(phase, name, doc string, build func(*config.Config) ([]runtime.Object, error)) Step {
		return Step{Name: name, Doc: doc, Run: i.dryObjects(phase+"-"+name, build)}
	}
	addons := same("addon")
	addons.Steps = nil
	for _, a := range []string{"coredns", "kube-proxy", "flannel"} {
		addons.Steps = append(addons.Steps, objects("addon", a, "the objects of "+a, func(*config.Config) ([]runtime.Object, error) { return i.addons.objects(a) }))
	}
	return []Step{
		same("preflight"),
		{Name: "files", Doc: "the site's own files", Run: i.site.writeAll, Empty: same("files").Empty},
		{Name: "runtime", Doc: "containerd's configuration and unit", Run: func(context.Context) error { return i.runtimeStep.writeFiles() }},
		same("certs"), same("kubeconfig"), same("etcd"), same("control-plane"),
		{Name: "kubelet-start", Doc: "the kubelet's configuration and unit", Run: func(context.Context) error {
			settings, err := render.KubeletConfig(i.config)
			if err != nil {
				return err
			}
			return i.kubelet.writeFiles(settings)
		}},
		{Name: "wait-control-plane", Doc: "the ClusterRoleBinding of the administrators", Run: i.dryObjects("wait-control-plane", func(*config.Config) ([]runtime.Object, error) {
			return []runtime.Object{render.ClusterAdmins()}, nil
		})},
		{Name: "upload-config", Doc: "the stored configuration", Steps: []Step{
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
	for _, m := range i.plan.siteManifests() {
		data, err := i.manifests.document(ctx, m.Entry())
		if err != nil {
			return err
		}
		if err := i.write(pki.File{Path: "/cluster/manifests-" + m.Name + ".yaml", Data: data, Mode: 0o600}); err != nil {
			return err
		}
	}
	return nil
}

// dryObjects returns a step that writes the objects of a phase as one manifest.
func (i *Init) dryObjects(phase string, build func(*config.Config) ([]runtime.Object, error)) func(context.Context) error {
	return func(context.Context) error {
		objects, err := build(i.config)
		if err != nil || len(objects) == 0 {
			return err
		}
		data, err := render.Manifest(objects...)
		if err != nil {
			return err
		}
		return i.write(pki.File{Path: "/cluster/" + phase + ".yaml", Data: data, Mode: 0o600})
	}
}
