package seed

import (
	"bytes"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// A Step is a command of the installer on a host.
type Step struct {
	Verb string // of package plan
	Args []string
	// Stdin is the document of the command. It has secrets.
	Stdin []byte
	// Files are written before the command, by their paths, and Dir is emptied before that, and removed after it if Drop is set.
	Files map[string][]byte
	Dir   string
	Drop  bool
}

// String is the command as it is typed, without secrets.
func (s Step) String() string { return "install " + strings.Join(s.Args, " ") }

// plan is the plan of `cluster apply` for hosts that have nothing yet: the seed has no other source of what it runs.
func (s *Seed) plan() (*plan.Plan, error) {
	answers := map[string]plan.Answer{}
	for _, h := range s.Cluster.Hosts {
		f := &facts.Facts{Hostname: h.Name, MachineID: "of " + h.Name, MACs: []string{"of " + h.Name}, Addresses: []string{}, Time: s.Created, Arch: s.Bundle.Arch}
		for _, ip := range h.NodeIP {
			f.Addresses = append(f.Addresses, ip.String())
		}
		answers[h.Name] = plan.Answer{Facts: f, At: s.Created}
	}
	p, problems := plan.Make(plan.Input{Spec: &s.Cluster, Answers: answers, Version: s.Bundle.Version, Bundle: s.Bundle.ID, Arch: s.Bundle.Arch})
	if len(problems) == 0 {
		return p, nil
	}
	var texts []string
	for _, p := range problems {
		texts = append(texts, strings.TrimSpace(p.Host+" "+p.What+" ("+p.Why+")"))
	}
	return nil, fault.New(fault.Usage, "these hosts cannot become a cluster: %s", strings.Join(texts, "; ")).Hint(problems[0].Hint)
}

// Steps returns what a host runs, in order. Labels and taints are set by the first control plane: see Meta.
func (s *Seed) Steps(name string) (steps []Step, err error) {
	p, err := s.plan()
	if err != nil {
		return nil, err
	}
	h, _ := s.Host(name)
	for _, stage := range p.Stages {
		for _, a := range stage.Actions {
			if a.Host != name || a.Verb == plan.NodeMeta {
				continue
			}
			for _, args := range a.Commands {
				step, err := s.step(h, a, args)
				if err != nil {
					return nil, err
				}
				steps = append(steps, step)
			}
		}
	}
	return steps, nil
}

func (s *Seed) step(h spec.Host, a plan.Action, args []string) (step Step, err error) {
	step = Step{Verb: a.Verb, Args: args, Files: map[string][]byte{}}
	var document io.Reader
	switch a.Verb {
	case plan.Init:
		t := plan.Token{Text: s.Token, Expires: s.Expires, Groups: []string{config.NodeTokenGroup, Group}, About: "seed " + s.ID + ": join of the other hosts"}
		if s.ControlPlanes() > 1 {
			t.CertificateKey = s.CertificateKey
			step.Args = append(slices.Clone(args), "--upload-certs")
		}
		document, err = plan.InitDocuments(&s.Cluster, h, t)
	case plan.Join:
		document, err = plan.JoinDocument(&s.Cluster, h, &plan.Credentials{Token: s.Token, APIServerEndpoint: s.Endpoint(), CertificateKey: s.CertificateKey})
	case plan.Mirrors:
		step.Dir, step.Drop = plan.RegistriesDir, true
		maps.Copy(step.Files, s.Files)
	}
	if a.ReadsTarget() {
		document = bytes.NewReader(s.BackupTarget)
	}
	if err == nil && document != nil {
		step.Stdin, err = io.ReadAll(document)
	}
	if a.ReadsPatches() && h.Patches != "" {
		step.Dir = plan.PatchesDir
		for name, data := range s.Patches[h.Patches] {
			step.Files[path.Join(plan.PatchesDir, name)] = data
		}
	}
	return step, err
}

// A Meta is the labels and taints that a Node is to have.
type Meta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Taints []string          `json:"taints"`
}

// Meta returns the labels and taints of the hosts that need some.
func (s *Seed) Meta() (list []Meta, err error) {
	p, err := s.plan()
	if err != nil {
		return nil, err
	}
	for _, stage := range p.Stages {
		for _, a := range stage.Actions {
			if h, _ := s.Host(a.Host); a.Verb == plan.NodeMeta {
				list = append(list, Meta{h.Name, h.Labels, h.Taints})
			}
		}
	}
	return list, nil
}

// DefaultTTL is how long a seed is valid: long enough to carry a drive to a site, and short for a stolen one.
const DefaultTTL = 72 * time.Hour
