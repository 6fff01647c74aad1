package revision

import (
	"bytes"
	"context"

	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host/filesystem"
	"airlift/installer/patches"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// SharedKubelet returns the KubeletConfiguration that all nodes share, for a configuration of this node. Another
// KubeletConfiguration in it replaces the cluster's.
func (r *Revision) SharedKubelet(c *config.Config) ([]byte, error) {
	if c.Kubelet != nil || r.Stored.DefaultKubelet && !r.Options.Node {
		return render.KubeletConfig(c)
	}
	return r.Stored.Kubelet, nil
}

// KubeletConfig returns this node's kubelet configuration.
func (r *Revision) KubeletConfig(context.Context) (desired.List, error) {
	files, err := r.KubeletFiles()
	return desired.List{Files: files}, err
}

// WriteKubeletConfig writes this node's kubelet configuration. The running kubelet does not read it
// before it restarts.
func (r *Revision) WriteKubeletConfig(_ context.Context, l desired.List) error {
	changed, err := r.WriteKept(l.Files...)
	if changed && r.Adopted != nil {
		for _, note := range r.Adopted.Notes {
			r.Console.Note("%s", note)
		}
	}
	return err
}

// KubeletFiles returns the files with this node's kubelet configuration, KubeletConfigFile first.
func (r *Revision) KubeletFiles() ([]pki.File, error) {
	s, err := r.KubeletDocuments(r.Config)
	if err != nil {
		return nil, err
	}
	r.ReportPatched("the kubelet's configuration", s.patches)
	now, err := r.Present(config.KubeletConfigFile)
	if err != nil {
		return nil, err
	}
	if reconfiguration.SameDocument(now, s.Data) { // comments and the order of fields stay
		s.Data = now
	}
	files := []pki.File{{Path: config.KubeletConfigFile, Data: s.Data, Mode: 0o600}}
	if s.instance != nil && !bytes.Equal(s.instance, s.before) {
		files = append(files, pki.File{Path: render.KubeletInstanceConfigPath, Data: s.instance, Mode: 0o644})
	}
	flags, err := r.Present(config.KubeletFlagsFile)
	if err != nil {
		return nil, err
	}
	if flags != nil && (!render.IsKubeletFlagsFile(flags)) {
		return nil, fault.New(fault.Preflight, "reading %s: the file is damaged: it does not set KUBELET_KUBEADM_ARGS", config.KubeletFlagsFile).Hint("to start the kubelet without flags: echo 'KUBELET_KUBEADM_ARGS=\"\"' >" + config.KubeletFlagsFile)
	}
	kept, err := r.Change.KubeletFlags(flags)
	if kept != nil {
		files = append(files, pki.File{Path: config.KubeletFlagsFile, Data: kept, Mode: 0o644})
	}
	return files, err
}

// KubeletDocuments are what a configuration gives to the kubelet of this node.
type KubeletDocuments struct {
	Data     []byte   // KubeletConfigFile
	patches  []string // that were used
	before   []byte   // KubeletInstanceConfigPath as it is, nil without one
	instance []byte   // and as it is to be
}

// KubeletDocuments returns the kubelet's configuration of this node for a configuration.
func (r *Revision) KubeletDocuments(c *config.Config) (s KubeletDocuments, err error) {
	shared, err := r.SharedKubelet(c)
	if err != nil {
		return s, err
	}
	own := *c
	own.Kubelet = nil // the cgroup driver of a running node stays, also if the documents have the cluster's
	if s.Data, err = render.NodeKubeletConfig(&own, shared); err != nil {
		return s, err
	}
	if s.before, err = r.Present(render.KubeletInstanceConfigPath); err != nil {
		return s, err
	}
	s.instance = s.before
	if s.instance == nil {
		s.instance = render.KubeletInstanceConfig(c)
	}
	if s.instance, err = r.Change.KubeletInstance(shared, s.instance); err != nil {
		return s, err
	}
	if s.Data, err = render.OverlayKubeletConfig(s.Data, s.instance); err != nil {
		return s, fault.New(fault.Preflight, "reading %s: the file is damaged: %w", render.KubeletInstanceConfigPath, err).Hint("to let the upgrade write it again: " + filesystem.SetAside(render.KubeletInstanceConfigPath))
	}
	s.Data, s.patches, err = r.Plan.Patches.Apply(patches.KubeletConfiguration, s.Data)
	return s, err
}

// KubeletUnits returns the kubelet's unit and its drop-in.
func KubeletUnits() []pki.File {
	return []pki.File{
		{Path: render.KubeletUnitPath, Data: []byte(render.KubeletUnit), Mode: 0o600},
		{Path: render.KubeletDropInPath, Data: []byte(render.KubeletDropIn), Mode: 0o600},
	}
}

// WaitRestarted waits until the node is Ready after a restart of the kubelet.
func (r *Revision) WaitRestarted(ctx context.Context) error {
	if err := r.WaitKubelet(ctx); err != nil {
		return err
	}
	if err := r.waitSettled(ctx); err != nil {
		return err
	}
	return r.WaitVersion(ctx)
}

// WaitVersion waits until the node is Ready with the version of the bundle.
func (r *Revision) WaitVersion(ctx context.Context) error {
	return r.Watch.Watched(ctx, pods.Dependency{}, func(ctx context.Context) error {
		return r.API.Client.WaitForNodeVersion(ctx, r.Config.NodeRegistration.Name, r.Bundle.KubernetesVersion(), r.Config.CNI != "none", phases.NodeTimeout, r.Report)
	})
}

// waitSettled waits for the static pods of a control plane after the start of another kubelet.
func (r *Revision) waitSettled(ctx context.Context) error {
	if r.Pods == nil {
		return nil
	}
	if err := r.Pods.WaitSettled(ctx, r.API.Client, r.Config.NodeRegistration.Name); err != nil {
		return err
	}
	if err := r.waitAPI(ctx); err != nil {
		return err
	}
	nodes, err := inventory.Nodes(ctx, r.API.Client.API)
	drains := err != nil || inventory.WorkersAreNext(nodes, r.Config.NodeRegistration.Name, r.Bundle.KubernetesVersion())
	return WaitServices(ctx, r.API, drains)
}
