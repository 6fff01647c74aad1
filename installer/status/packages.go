package status

import (
	"context"

	"airlift/installer/host/ledger"
	"airlift/installer/host/ospackages"
	"airlift/internal/fault"
)

// A Package is a package of the host's distribution.
type Package struct {
	Name      string `json:"name"`
	Version   string `json:"version"`             // of the file, or that Airlift installed
	Installed string `json:"installed,omitempty"` // the version that the host has
	State     string `json:"state"`               // installed, newer, older, missing, or why it is incomplete
}

func (r *Reader) readPackages(ctx context.Context) (found result, err error) {
	m, items, err := r.packageItems(ctx)
	if fault.ExitCode(err) == fault.Preflight { // the node was installed without them, or its distribution was upgraded
		found.warn(fault.Hint(err), "%v", err)
		return found, nil
	}
	if err != nil {
		return found, err
	}
	const fix = "./install packages"
	var list []Package
	for _, i := range items {
		p := Package{i.Name, i.Version, i.Has, "installed"}
		switch i.Act {
		case ospackages.Install:
			p.State = "missing"
			report := found.warn
			if _, ours := r.Host.Records().Find(ledger.Package, i.Name); ours {
				report = found.problem
			}
			report(fix, "the package %s %s is not installed", i.Name, i.Version)
		case ospackages.Repair:
			p.State = i.Reason
			found.problem(fix, "the package %s is not installed completely: it is %s", i.Name, i.Reason)
		case ospackages.Upgrade:
			p.State = "older"
			found.warn(fix, "the package %s is %s, and this file has %s", i.Name, i.Has, i.Version)
		case ospackages.Keep:
			p.State = "kept: " + i.Reason
		}
		list = append(list, p)
	}
	if m != nil {
		others, err := m.Incomplete(ctx, items)
		if err != nil {
			return found, err
		}
		if others != "" {
			found.problem(ospackages.Complete, "%s", others)
		}
	}
	found.set = func(s *Status) { s.Packages = append(s.Packages, list...) }
	return found, nil
}

// packageItems returns the packages of the file, or without a file the packages that Airlift installed.
func (r *Reader) packageItems(ctx context.Context) (*ospackages.Manager, []ospackages.Item, error) {
	if r.Contents.Packages == nil {
		return ospackages.Recorded(ctx, r.Host)
	}
	wanted, err := ospackages.ForHost(r.Host, r.Contents.Packages(r.node.Role))
	if len(wanted) == 0 || err != nil {
		return nil, nil, err
	}
	m, err := ospackages.New(r.Host, wanted[0].Format(), nil)
	if err != nil {
		return nil, nil, err
	}
	items, err := m.Plan(ctx, wanted)
	return m, items, err
}
