// Package phases has what init, join and upgrade share: the plan for a host, the state of the host,
// and their common steps.
package phases

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/patches"
	"airlift/installer/payload"
)

// A Plan describes what this host will become. It is complete before the first
// step and does not change. What a run finds out is stored in the run.
type Plan struct {
	Config  *config.Config // complete and valid
	Bundle  *payload.Bundle
	Patches *patches.Set
	// OnePhase reports whether one phase runs alone. The results of earlier
	// phases must then be on the host.
	OnePhase bool
	Role     Role
}

// Warn receives warnings for the user.
type Warn func(format string, args ...any)

// PlanInit plans the first control plane of a new cluster. c must be complete
// and valid. onePhase reports whether one phase runs alone.
func PlanInit(b *payload.Bundle, c *config.Config, onePhase bool, warn Warn) (*Plan, error) {
	p := &Plan{Config: c, Bundle: b, OnePhase: onePhase, Role: FirstControlPlane}
	named, err := p.NameImages(c)
	if err == nil {
		p.Config = named
	}
	return p, errors.Join(err, p.LoadPatches(warn))
}

// PlanJoin plans a node of an existing cluster: a worker or another control
// plane. The run adds the cluster's configuration when it has found the
// cluster.
func PlanJoin(b *payload.Bundle, c *config.Config, onePhase bool, warn Warn) (*Plan, error) {
	p := &Plan{Config: c, Bundle: b, OnePhase: onePhase, Role: JoiningRole(c)}
	return p, p.LoadPatches(warn)
}

// NameImages returns a copy of c with an image name for each component. It
// fails if c needs an image version that the bundle does not contain.
func (p *Plan) NameImages(c *config.Config) (*config.Config, error) {
	needed := maps.Clone(p.Bundle.Images)
	maps.DeleteFunc(needed, func(component, _ string) bool {
		return !p.Role.Needs(component) || slices.Contains(p.Role.running, component)
	})
	names, err := c.ImageNames(needed)
	if err != nil {
		return nil, err
	}
	for _, component := range p.Role.running { // its pods may come to this node; the cluster may have another version than the bundle
		if name, err := c.ImageNames(map[string]string{component: p.Bundle.Images[component]}); err == nil && p.Bundle.Images[component] != "" {
			maps.Copy(names, name)
		}
	}
	if err := p.Bundle.CheckAliases(names); err != nil {
		return nil, err
	}
	named := *c
	named.Images = maps.Clone(p.Bundle.Images)
	maps.Copy(named.Images, names)
	return &named, nil
}

// LoadPatches reads the directory that --patches names.
func (p *Plan) LoadPatches(warn Warn) error {
	if p.Config.Patches == "" {
		return nil
	}
	set, warnings, err := patches.Load(p.Config.Patches)
	for _, w := range warnings {
		warn("%s", w)
	}
	p.Patches = set
	return err
}

// Skips reports whether a phase is skipped, by its own name or by its parent's
// name.
func (p *Plan) Skips(name string) bool {
	parent, _, _ := strings.Cut(name, "/")
	return slices.Contains(p.Config.SkipPhases, name) || slices.Contains(p.Config.SkipPhases, parent)
}

// Images returns the images in the bundle that this node needs.
func (p *Plan) Images() []bundle.Image {
	var needed []bundle.Image
	for _, i := range p.Bundle.Manifest.Images {
		if p.Role.Needs(i.Name) || i.EveryNode {
			needed = append(needed, i)
		}
	}
	return needed
}

// MissingImages returns the components that a node with the configuration c
// needs and the bundle does not contain.
func (p *Plan) MissingImages(c *config.Config) []string {
	return slices.DeleteFunc(slices.Clone(p.Role.Components), func(component string) bool {
		return !configured(component, c) || p.Bundle.Images[component] != ""
	})
}

// hasEtcd reports whether a node with the configuration c has its own etcd.
func (p *Plan) hasEtcd(c *config.Config) bool {
	return slices.Contains(p.Role.Components, "etcd") && configured("etcd", c)
}

// configured reports whether a cluster with the configuration c runs a
// component.
func configured(component string, c *config.Config) bool {
	switch component {
	case "etcd":
		return c.Etcd.External == nil
	case "coredns":
		return !c.DNS.Disabled
	case "kube-proxy":
		return !c.Proxy.Disabled
	case "flannel":
		return c.CNI == "flannel"
	}
	return true
}

// Aliases returns the image names in c that differ from the bundle's names, by
// the bundle's name.
func (p *Plan) Aliases(c *config.Config) map[string]string {
	names := map[string]string{}
	for component, reference := range p.Bundle.Images {
		if name := c.Images[component]; name != reference {
			names[reference] = name
		}
	}
	return names
}

// wantsBinary reports whether an entry of the bundle is installed on this host.
// kubectl is installed only on control planes. A container runtime is installed
// only if the host has none, and CNI plugins unless another tool made the node.
func (p *Plan) wantsBinary(entry string, o node.Observation) bool {
	switch name := strings.TrimPrefix(entry, bundle.BinDir); {
	case name == "kubectl":
		return p.Role.kubectl
	case name == "runc", name == "ctr", strings.HasPrefix(name, "containerd"):
		return !o.KeepsRuntime
	}
	return !o.KeepsPlugins || !strings.HasPrefix(entry, bundle.CNIDir)
}
