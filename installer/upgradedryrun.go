package installer

import (
	"bytes"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
)

// DryRun runs the checks, and writes the files and objects that the upgrade would change into a new
// directory. It changes nothing else.
func (u *Upgrade) DryRun(ctx context.Context) error {
	return inDirectory(strings.Replace(u.command(), " ", "-", 1), u.existing, u.console, func(m *machine) error {
		dry := newUpgrade(&Plan{config: &config.Config{}, bundle: u.bundle}, u.options, m)
		defer dry.Close()
		steps := dry.drySteps()
		return Run(ctx, u.console, steps, onlyKnown(steps, u.options.SkipPhases))
	})
}

// drySteps returns the steps that write files or objects.
func (u *Upgrade) drySteps() []Step {
	steps := []Step{
		{Name: "preflight", Doc: "check this file, this node and the cluster", Run: u.preflight},
		{Name: "control-plane", Doc: "the static pods that would be replaced", Run: u.with(u.dryPods)},
	}
	if !u.options.Node {
		steps = append(steps, Step{Name: "upload-config", Doc: "the stored configuration", Steps: []Step{
			{Name: "kubeadm", Doc: "the ClusterConfiguration", Run: u.with(u.dryObjects("upload-config-kubeadm", render.UploadClusterConfig))},
			{Name: "kubelet", Doc: "the KubeletConfiguration", Run: u.with(func(ctx context.Context) error {
				if !u.stored.DefaultKubelet {
					u.console.Note("the KubeletConfiguration was changed by the user: it is kept")
					return nil
				}
				return u.dryObjects("upload-config-kubelet", render.UploadKubeletConfig)(ctx)
			})},
		}})
	}
	return append(steps,
		Step{Name: "kubelet-config", Doc: "the kubelet's configuration", Run: u.with(func(context.Context) error { return u.dryFiles(u.kubeletFiles()) })},
		Step{Name: "runtime", Doc: "containerd's configuration and unit", Run: u.with(func(context.Context) error { return u.dryFiles(u.runtimeFiles()) })},
		Step{Name: "kubelet", Doc: "the kubelet's unit", Run: u.with(func(context.Context) error { return u.dryFiles(kubeletUnits(), nil) })},
	)
}

func (u *Upgrade) dryPods(context.Context) error {
	if u.pods == nil {
		u.console.Note("nothing to do: this node is not a control plane")
		return nil
	}
	for _, name := range staticPodOrder {
		if u.plans[name] == nil {
			continue
		}
		replaces, err := u.replaces(name)
		if err != nil {
			return err
		}
		if !replaces {
			continue
		}
		u.console.Note("%s is replaced", name)
		if err := u.write(pki.File{Path: manifestPath(name), Data: u.plans[name], Mode: 0o600}); err != nil {
			return err
		}
	}
	return nil
}

// dryFiles writes those files that differ from the host's.
func (u *Upgrade) dryFiles(files []pki.File, err error) error {
	if err != nil {
		return err
	}
	for _, f := range files {
		now, err := u.optional(f.Path)
		if err != nil {
			return err
		}
		if bytes.Equal(now, f.Data) {
			continue
		}
		u.console.Note("%s changes", f.Path)
		if err := u.write(f); err != nil {
			return err
		}
	}
	return nil
}

// dryObjects writes the objects of a phase as one manifest.
func (u *Upgrade) dryObjects(phase string, build func(*config.Config) ([]runtime.Object, error)) func(context.Context) error {
	return func(context.Context) error {
		objects, err := build(u.config)
		if err != nil {
			return err
		}
		data, err := render.Manifest(objects...)
		if err != nil {
			return err
		}
		return u.write(pki.File{Path: "/cluster/" + phase + ".yaml", Data: data, Mode: 0o600})
	}
}
