package installer

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/images"
	"airlift/installer/config"
	"airlift/installer/patches"
	"airlift/installer/preflight"
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
	// role is what the host becomes. The following fields depend on it.
	role         preflight.Role
	controlPlane bool
	required     []string // components whose images this role always needs
}

// Warn receives warnings for the user.
type Warn func(format string, args ...any)

// PlanInit plans the first control plane of a new cluster. c must be complete
// and valid. onePhase reports whether one phase runs alone.
func PlanInit(b *Bundle, c *config.Config, onePhase bool, warn Warn) (*Plan, error) {
	p := newPlan(preflight.Init, b, c, onePhase)
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
	role := preflight.Join
	if c.ControlPlane {
		role = preflight.JoinControlPlane
	}
	p := newPlan(role, b, c, onePhase)
	return p, p.loadPatches(warn)
}

func newPlan(role preflight.Role, b *Bundle, c *config.Config, onePhase bool) *Plan {
	p := &Plan{config: c, bundle: b, onePhase: onePhase, role: role, required: []string{"pause"}}
	if role != preflight.Join {
		p.controlPlane = true
		p.required = append(p.required, controlPlaneComponents...)
	}
	return p
}

// nameImages returns a copy of c with an image name for each component. It
// fails if c needs an image version that the bundle does not contain.
func (p *Plan) nameImages(c *config.Config) (*config.Config, error) {
	needed := maps.Clone(p.bundle.images)
	maps.DeleteFunc(needed, func(component, _ string) bool {
		if component == "coredns" {
			return p.role == preflight.JoinControlPlane // the cluster has CoreDNS already
		}
		return !p.needs(component)
	})
	names, err := c.ImageNames(needed)
	if err != nil {
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

// needs reports whether this node runs a component's image. Workers do not need
// the images of the control plane.
func (p *Plan) needs(component string) bool {
	return p.controlPlane || images.Worker(component)
}

// images returns the images in the bundle that this node needs.
func (p *Plan) images() []bundle.Image {
	var needed []bundle.Image
	for _, i := range p.bundle.manifest.Images {
		if p.needs(i.Name) {
			needed = append(needed, i)
		}
	}
	return needed
}

// missingImages returns the components that a node with the configuration c
// needs and the bundle does not contain.
func (p *Plan) missingImages(c *config.Config) []string {
	needed := slices.Clone(p.required)
	if p.controlPlane && c.Etcd.External == nil {
		needed = append(needed, "etcd")
	}
	if p.role == preflight.Init && !c.DNS.Disabled {
		needed = append(needed, "coredns")
	}
	if !c.Proxy.Disabled {
		needed = append(needed, "kube-proxy")
	}
	if c.CNI == "flannel" {
		needed = append(needed, "flannel")
	}
	return slices.DeleteFunc(needed, func(component string) bool { return p.bundle.images[component] != "" })
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
		return p.controlPlane
	case name == "runc", name == "ctr", strings.HasPrefix(name, "containerd"):
		return !existingRuntime
	}
	return true
}
