package uninstall

import (
	"context"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/ospackages"
)

// PlanPackages lists the packages of the distribution that Airlift installed, and the packages that it leaves.
func PlanPackages(ctx context.Context, h *host.Host) (plan Plan) {
	list, err := ospackages.Removals(ctx, h)
	if err != nil {
		for _, e := range h.Records().Entries(ledger.Package) {
			plan = append(plan, Item{Act: Leave, What: "package " + e.Name, Reason: err.Error()})
		}
		return plan
	}
	for _, r := range list {
		item := Item{Act: Remove, What: "package " + r.Name + " " + r.Version}
		if r.Leave != "" {
			item.Act, item.Reason = Leave, r.Leave
		}
		plan = append(plan, item)
		if r.Leave == "" && r.Configuration {
			plan = append(plan, Item{Act: Leave, What: "configuration files of the package " + r.Name, Reason: "to remove them, too: dpkg --purge " + r.Name})
		}
	}
	return plan
}

// RemovePackages removes the packages of the distribution that Airlift installed.
func RemovePackages(ctx context.Context, h *host.Host) error {
	_, err := ospackages.Remove(ctx, h, func(text string) {
		if h.Warn != nil {
			h.Warn("%s", text)
		}
	})
	return err
}
