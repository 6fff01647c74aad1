package installer

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/patches"
)

// A Plan describes what this host will become. It is complete before the first
// step and does not change. What a run finds out is stored in the run.
type Plan struct {
	config  *config.Config // complete and valid
	bundle  *Bundle
	patches *patches.Set
	// onePhase reports whether one phase runs alone. The results of earlier
	// phases must then be on the host.
	onePhase bool
	role     role
}

// Warn receives warnings for the user.
type Warn func(format string, args ...any)

// PlanInit plans the first control plane of a new cluster. c must be complete
// and valid. onePhase reports whether one phase runs alone.
func PlanInit(b *Bundle, c *config.Config, onePhase bool, warn Warn) (*Plan, error) {
	p := &Plan{config: c, bundle: b, onePhase: onePhase, role: firstControlPlane}
	named, err := p.nameImages(c)
	if err == nil {
		p.config = named
	}
	return p, errors.Join(err, p.loadPatches(warn))
}

// PlanJoin plans a node of an existing cluster: a worker or another control
// plane. The run adds the cluster's configuration when it has found the
// cluster.
func PlanJoin(b *Bundle, c *config.Config, onePhase bool, warn Warn) (*Plan, error) {
	p := &Plan{config: c, bundle: b, onePhase: onePhase, role: joiningRole(c)}
	return p, p.loadPatches(warn)
}

// nameImages returns a copy of c with an image name for each component. It
// fails if c needs an image version that the bundle does not contain.
func (p *Plan) nameImages(c *config.Config) (*config.Config, error) {
	needed := maps.Clone(p.bundle.images)
	maps.DeleteFunc(needed, func(component, _ string) bool {
		return !p.role.needs(component) || slices.Contains(p.role.running, component)
	})
	names, err := c.ImageNames(needed)
	if err != nil {
		return nil, err
	}
	if err := p.bundle.checkAliases(names); err != nil {
		return nil, err
	}
	named := *c
	named.Images = maps.Clone(p.bundle.images)
	maps.Copy(named.Images, names)
	return &named, nil
}

// loadPatches reads the directory that --patches names.
func (p *Plan) loadPatches(warn Warn) error {
	if p.config.Patches == "" {
		return nil
	}
	set, warnings, err := patches.Load(p.config.Patches)
	for _, w := range warnings {
		warn("%s", w)
	}
	p.patches = set
	return err
}

// skips reports whether a phase is skipped, by its own name or by its parent's
// name.
func (p *Plan) skips(name string) bool {
	parent, _, _ := strings.Cut(name, "/")
	return slices.Contains(p.config.SkipPhases, name) || slices.Contains(p.config.SkipPhases, parent)
}

// images returns the images in the bundle that this node needs.
func (p *Plan) images() []bundle.Image {
	var needed []bundle.Image
	for _, i := range p.bundle.manifest.Images {
		if p.role.needs(i.Name) || i.EveryNode {
			needed = append(needed, i)
		}
	}
	return needed
}

// missingImages returns the components that a node with the configuration c
// needs and the bundle does not contain.
func (p *Plan) missingImages(c *config.Config) []string {
	return slices.DeleteFunc(slices.Clone(p.role.components), func(component string) bool {
		return !configured(component, c) || p.bundle.images[component] != ""
	})
}

// hasEtcd reports whether a node with the configuration c has its own etcd.
func (p *Plan) hasEtcd(c *config.Config) bool {
	return slices.Contains(p.role.components, "etcd") && configured("etcd", c)
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

// aliases returns the image names in c that differ from the bundle's names, by
// the bundle's name.
func (p *Plan) aliases(c *config.Config) map[string]string {
	names := map[string]string{}
	for component, reference := range p.bundle.images {
		if name := c.Images[component]; name != reference {
			names[reference] = name
		}
	}
	return names
}

// wantsBinary reports whether an entry of the bundle is installed on this host.
// kubectl is installed only on control planes. A container runtime is installed
// only if the host has none.
func (p *Plan) wantsBinary(entry string, existingRuntime bool) bool {
	switch name := strings.TrimPrefix(entry, bundle.BinDir); {
	case name == "kubectl":
		return p.role.kubectl
	case name == "runc", name == "ctr", strings.HasPrefix(name, "containerd"):
		return !existingRuntime
	}
	return true
}
