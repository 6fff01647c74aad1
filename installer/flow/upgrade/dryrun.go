package upgrade

import (
	"bytes"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// DryRun runs the checks, and writes the files and objects that the upgrade would change into a new
// directory. It changes nothing else.
func (u *Upgrade) DryRun(ctx context.Context) error {
	return phases.InDirectory(strings.Replace(u.facts.options.command(), " ", "-", 1), u.facts.node.Existing, u.facts.node.Console, func(m *node.Machine) error {
		dry := newUpgrade(&phases.Plan{Config: &config.Config{}, Bundle: u.facts.bundle}, u.facts.options, m)
		defer dry.Close()
		steps := dry.drySteps()
		return workflow.Run(ctx, u.facts.node.Console, steps, phases.OnlyKnown(steps, u.facts.options.SkipPhases))
	})
}

// drySteps returns the steps that write files or objects.
func (u *Upgrade) drySteps() []workflow.Step {
	w := &preview{node: u.facts.node, facts: u.facts, controlPlane: u.controlPlane}
	return u.ofCommand([]workflow.Step{
		{Name: "preflight", Doc: "check this file, this node and the cluster", Run: u.preflight},
		{Name: "control-plane", Doc: "the static pods that would be replaced", Run: u.learnThen(w.writePods)},
		{Name: "upload-config", Doc: "the stored configuration", Steps: []workflow.Step{
			{Name: "kubeadm", Doc: "the ClusterConfiguration", Run: u.learnThen(w.writeObjects("upload-config-kubeadm", render.UploadClusterConfig))},
			{Name: "kubelet", Doc: "the KubeletConfiguration", Run: u.learnThen(w.writeSharedKubelet)},
		}},
		{Name: "kubelet-config", Doc: "the kubelet's configuration", Run: u.learnThen(w.writeFiles(u.kubelet.files))},
		{Name: "runtime", Doc: "containerd's configuration and unit", Run: u.learnThen(w.writeFiles(u.containerd.files))},
		{Name: "kubelet", Doc: "the kubelet's unit", Run: u.learnThen(w.writeFiles(func() ([]pki.File, error) { return kubeletUnits(), nil }))},
	})
}

// A preview is the directory of a dry run.
type preview struct {
	node         *phases.Node
	facts        *facts
	controlPlane *controlPlane
}

// writeSharedKubelet writes the KubeletConfiguration that all nodes share.
func (w *preview) writeSharedKubelet(ctx context.Context) error {
	if !w.facts.stored.DefaultKubelet {
		w.node.Console.Note("the KubeletConfiguration was changed by the user: it is kept")
		return nil
	}
	return w.writeObjects("upload-config-kubelet", render.UploadKubeletConfig)(ctx)
}

// writePods writes the manifests that would be replaced.
func (w *preview) writePods(context.Context) error {
	if w.controlPlane.pods == nil {
		w.node.Console.Note("nothing to do: this node is not a control plane")
		return nil
	}
	for _, name := range pods.StaticPodOrder {
		if w.controlPlane.plans[name] == nil {
			continue
		}
		replaces, err := w.controlPlane.replaces(name)
		if err != nil {
			return err
		}
		if !replaces {
			continue
		}
		w.node.Console.Note("%s is replaced", name)
		if err := w.node.Write(pki.File{Path: node.ManifestPath(name), Data: w.controlPlane.plans[name], Mode: 0o600}); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles returns a step that writes those files that differ from the host's.
func (w *preview) writeFiles(list func() ([]pki.File, error)) func(context.Context) error {
	return func(context.Context) error {
		files, err := list()
		if err != nil {
			return err
		}
		for _, f := range files {
			now, err := existing(w.node.Machine, f.Path)
			if err != nil {
				return err
			}
			if bytes.Equal(now, f.Data) {
				continue
			}
			w.node.Console.Note("%s changes", f.Path)
			if err := w.node.Write(f); err != nil {
				return err
			}
		}
		return nil
	}
}

// writeObjects returns a step that writes the objects of a phase as one manifest.
func (w *preview) writeObjects(phase string, build func(*config.Config) ([]runtime.Object, error)) func(context.Context) error {
	return func(context.Context) error {
		objects, err := build(w.node.Config)
		if err != nil {
			return err
		}
		data, err := render.Manifest(objects...)
		if err != nil {
			return err
		}
		return w.node.Write(pki.File{Path: "/cluster/" + phase + ".yaml", Data: data, Mode: 0o600})
	}
}
