package phases

import (
	"context"
	"errors"
	"os"
	"strings"

	"airlift/bundle"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/host/ospackages"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Packages is the step packages: the packages of the host's distribution, which are installed before the host is checked.
type Packages struct {
	*node.Machine
	bundle *payload.Bundle
	wanted []bundle.SitePackage // for nodes of this kind
	// Before, if not nil, checks what must be true before the first change.
	Before func(context.Context) error
	// Attach, if not nil, lets a thin file read what it does not have.
	Attach func(context.Context) error
}

// NewPackages returns the Packages of a run of init or join.
func NewPackages(n *Node) Packages {
	return Packages{Machine: n.Machine, bundle: n.Plan.Bundle, wanted: n.Plan.SitePackages(), Before: n.checkBefore}
}

// PackagesOf returns the Packages of a host whose role is not chosen yet, or is "control-plane" or "worker".
func PackagesOf(b *payload.Bundle, role string, m *node.Machine) Packages {
	return Packages{Machine: m, bundle: b, wanted: PackagesFor(b, role), Before: func(ctx context.Context) error { return b.Checked(ctx, m.Console) }}
}

// PackagesFor returns the packages for nodes of a role, "control-plane" or "worker", or for all nodes.
func PackagesFor(b *payload.Bundle, role string) []bundle.SitePackage {
	p := Plan{Bundle: b}
	switch role {
	case node.ControlPlane:
		p.Role = FirstControlPlane
	case node.Worker:
		p.Role = Worker
	}
	return p.SitePackages()
}

// SitePackages returns the packages for nodes of this role, of all releases.
func (p *Plan) SitePackages() (list []bundle.SitePackage) {
	for _, s := range p.Content().Packages {
		if p.Role.gets(s.Nodes) {
			list = append(list, s)
		}
	}
	return list
}

// Step returns the step.
func (p Packages) Step() workflow.Step {
	return workflow.Step{Name: "packages", Doc: "install the packages of the host's distribution", Prepare: p.Before, Desired: p.Desired, Apply: p.install, Empty: len(p.wanted) == 0}
}

// Desired returns the packages that would be installed. It refuses a host for which they are not. In a dry run, the host's package
// manager checks them here: Apply does not run.
func (p Packages) Desired(ctx context.Context) (desired.List, error) {
	items, err := p.Items(ctx)
	if err == nil && p.Host != p.Existing {
		err = p.Check(ctx, items)
	}
	return desired.List{Packages: ospackages.Changes(items)}, err
}

// Check refuses packages that the host's package manager would refuse, and changes nothing. It writes them to a temporary directory.
func (p Packages) Check(ctx context.Context, items []ospackages.Item) error {
	changed := ospackages.Changes(items)
	if len(changed) == 0 {
		return nil
	}
	if err := p.bundle.Checked(ctx, p.Console); err != nil {
		return err
	}
	m, err := ospackages.New(p.Existing, changed[0].Format(), p.Report)
	if err != nil {
		return err
	}
	parent := os.TempDir()
	if p.Host != p.Existing {
		parent = p.Host.Path("/")
	}
	dir, err := host.NewDirectory(parent, "airlift-packages-")
	if err != nil {
		return err
	}
	return errors.Join(m.Check(ctx, items, dir, p.unpack(dir)), dir.RemoveDirectory())
}

// Items returns the packages for this host, with what is done with each.
// It warns of other packages that are not installed completely, such as one whose trigger failed in an earlier run.
func (p Packages) Items(ctx context.Context) ([]ospackages.Item, error) {
	m, items, err := p.plan(ctx)
	if m == nil || err != nil {
		return nil, err
	}
	others, err := m.Incomplete(ctx, items)
	if others != "" {
		p.Console.Warn("%s; %s", others, ospackages.Complete)
	}
	return items, err
}

func (p Packages) plan(ctx context.Context) (*ospackages.Manager, []ospackages.Item, error) {
	wanted, err := ospackages.ForHost(p.Existing, p.wanted)
	if len(wanted) == 0 || err != nil {
		return nil, nil, err
	}
	m, err := ospackages.New(p.Existing, wanted[0].Format(), p.Report)
	if err != nil {
		return nil, nil, err
	}
	items, err := m.Plan(ctx, wanted)
	return m, items, err
}

// install installs the packages for this host, all of them checked before the first change.
func (p Packages) install(ctx context.Context, _ desired.List) error {
	wanted, err := ospackages.ForHost(p.Host, p.wanted)
	if len(wanted) == 0 || err != nil {
		return err
	}
	m, err := ospackages.New(p.Host, wanted[0].Format(), func(text string) { p.Console.Note("%s", text) })
	if err != nil {
		return err
	}
	_, asked := ospackages.RebootRequired(p.Host)
	items, err := m.Install(ctx, wanted, p.unpack(p.Host))
	if err != nil {
		return err
	}
	changed := ospackages.Changes(items)
	p.Changes += len(changed)
	for _, i := range items {
		switch i.Act {
		case ospackages.Nothing:
			p.Console.Debug(1, "%s", i)
		case ospackages.Keep:
			p.Console.Note("%s", i)
		case ospackages.Repair:
			p.Console.Note("completed %s %s, which was %s", i.Name, i.Version, i.Reason)
		default:
			p.Console.Note("installed %s", i)
		}
	}
	if names, required := ospackages.RebootRequired(p.Host); required && !asked {
		p.Console.Warn("this host must be rebooted, because of %s: /run/reboot-required", strings.Join(append(names, "its packages")[:max(1, len(names))], ", "))
	}
	return nil
}

// unpack writes packages of the file to a host or a directory.
func (p Packages) unpack(to *host.Host) ospackages.Unpack {
	return func(ctx context.Context, entries []string) (map[string]string, error) {
		if p.Attach != nil {
			if err := p.Attach(ctx); err != nil {
				return nil, err
			}
		}
		if err := p.bundle.NeedsSource(); err != nil {
			return nil, err
		}
		return p.bundle.Packages(ctx, to, entries)
	}
}

// packageProblem returns why the packages cannot be installed on this host, and how many are not installed yet.
func (n *Node) packageProblem(ctx context.Context) (pending int, err error) {
	if n.Plan.Skips("packages") {
		return 0, nil
	}
	_, items, err := NewPackages(n).plan(ctx)
	return len(ospackages.Changes(items)), err
}

// checkBefore checks what must be true before the first change of this host, and whether this run can continue an earlier one.
func (n *Node) checkBefore(ctx context.Context) error {
	if err := n.Plan.Bundle.Checked(ctx, n.Console); err != nil {
		return err
	}
	return n.checkEarlierRun(ctx)
}

// NoPackages is the error of a file that has no packages for hosts.
func NoPackages(m *bundle.Manifest) error {
	if len(m.Packages) > 0 {
		return nil
	}
	return fault.New(fault.Usage, "this file has no packages").Hint("list them in the field packages of bundle.yaml: ./install docs packages")
}
