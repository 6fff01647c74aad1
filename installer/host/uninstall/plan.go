package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/images/release"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/kernel"
	"airlift/installer/host/ledger"
	"airlift/installer/host/podnetwork"
)

// What reset does with an Item.
const (
	Remove = "remove"
	Empty  = "empty"
	Save   = "save" // rename, so that it has no effect any more
	Leave  = "leave"
)

// An Item is one thing on the host, and what reset does with it.
type Item struct {
	Act    string
	What   string
	Path   string // if it is a path
	Reason string
}

func (i Item) String() string {
	if i.Reason == "" {
		return i.What
	}
	return i.What + ": " + i.Reason
}

// A Plan lists the changes of reset, computed before the first change.
type Plan []Item

// PlanFor lists what reset removes from this host, and what it leaves in the same
// directories. RemoveInterfaces, RemoveRules, RemoveRoutes, RemoveState, RemovePackages and
// RemoveInstalled execute it.
func PlanFor(h *host.Host) (Plan, error) {
	plan := Plan{} // not nil: nil means that there is no ledger
	for _, kind := range []string{ledger.Unit, ledger.Interface, ledger.Route, ledger.Network, ledger.Contents, ledger.Owned, ledger.File, ledger.Binary, ledger.Saved, ledger.Spared} {
		for _, e := range h.Records().Entries(kind) {
			item, err := planned(h, e)
			if err != nil { // continue with the others
				item = Item{Act: Leave, What: e.Name, Path: e.Name, Reason: err.Error()}
			}
			if item.Act != "" {
				plan = append(plan, item)
			}
		}
	}
	plan = append(plan, PlanPackages(context.Background(), h)...)
	for _, n := range h.Records().ImageNames() {
		item := Item{Act: Remove, What: "image name " + n.Name, Reason: "in the containerd at " + n.Socket}
		if n.Before != nil {
			item.Reason += "; its previous image is restored"
		}
		plan = append(plan, item)
	}
	if h.Records().Adopted() != nil {
		return append(plan, backups(h)...), nil // all else is of the node
	}
	if h.Records().RanNode() {
		plan = append(plan, Item{Act: Remove, What: "iptables and nftables rules", Reason: "of Kubernetes, flannel and this node's pods"})
	}
	left, err := leftovers(h)
	return append(plan, left...), err
}

// planned decides what reset does with an entry of the ledger. An Item without
// an Act means that nothing needs to be done.
func planned(h *host.Host, e ledger.Entry) (Item, error) {
	path := h.Path(e.Name)
	item := Item{Act: Remove, What: e.Name, Path: e.Name, Reason: e.Contents}
	if e.Contents != "" {
		item.Reason = "it contains " + e.Contents
	}
	if KeepsCredentials(h, e) {
		return Item{Act: Leave, What: e.Name, Path: e.Name, Reason: "it stays renewed; only the API server in it is restored"}, nil
	}
	switch e.Kind {
	case ledger.Unit:
		return Item{Act: Remove, What: "systemd unit " + e.Name}, nil
	case ledger.Route:
		return Item{Act: Remove, What: "route " + e.Name}, nil
	case ledger.Network:
		return Item{Act: Remove, What: "CNI network " + e.Name, Reason: "its addresses and the records of its pods"}, nil
	case ledger.Interface:
		if _, err := netlink.LinkByName(e.Name); err != nil {
			return Item{}, nil
		}
		return Item{Act: Remove, What: "network interface " + e.Name}, nil
	case ledger.Contents:
		names, err := toEmpty(h, e.Name)
		if err != nil || len(names) == 0 {
			return Item{}, err
		}
		item.Act = Empty
		return item, nil
	case ledger.Spared:
		item.Act, item.Reason = Leave, "it existed before init or join"
		return item, nil
	}
	if !filesystem.Exists(path) {
		// putBack still restores the original.
		return Item{}, nil
	}
	switch e.Kind {
	case ledger.File:
		if e.Original != "" && !filesystem.Exists(h.Path(e.Original)) {
			return Item{}, nil // an interrupted reset restored it already
		}
		ours, err := isOurs(h, e)
		if err != nil {
			return Item{}, fmt.Errorf("reading %s: %w", e.Name, err)
		}
		if !ours && !h.Records().Regenerated(e.Name) {
			saved := filepath.Join(filepath.Dir(e.Name), filepath.Base(filesystem.FreeName(path)))
			item.Act, item.What, item.Path = Save, saved, saved
			item.Reason = e.Name + " was edited; it is saved under this name"
		}
	case ledger.Saved:
		if h.Records().InClaimed(e.Name) {
			return Item{}, nil // it goes with the directory
		}
		item.Act, item.Reason = Leave, e.Contents+" was edited, and replaced by a later init or join; this is the edited file"
	case ledger.Binary:
		if e.Original != "" && !filesystem.Exists(h.Path(e.Original)) {
			return Item{}, nil // an interrupted reset restored it already
		}
		sum, err := filesystem.DigestFile(path)
		if err != nil && !errors.Is(err, filesystem.ErrNotRegular) {
			return Item{}, fmt.Errorf("reading %s: %w", e.Name, err)
		}
		if err != nil || !e.Wrote(sum) && (e.Original == "" || !h.Records().Adopted().Found(e.Name, sum)) {
			item.Act, item.Reason = Leave, "it was replaced after Airlift installed it"
		}
	}
	if e.Name == host.AccountFile && item.Act == Remove {
		item.Reason = "with the user or the group that it declares"
	}
	if e.Original != "" && item.Act == Remove {
		item.Reason = "the original file is restored"
	}
	return item, nil
}

// KeepsCredentials reports whether an entry is a certificate, a key or a kubeconfig of an adopted node. It may be renewed, so
// its original is not restored.
func KeepsCredentials(h *host.Host, e ledger.Entry) bool {
	if e.Kind != ledger.File || e.Original == "" || h.Records().Adopted() == nil {
		return false
	}
	return slices.Contains([]string{".crt", ".key", ".pub"}, filepath.Ext(e.Name)) && !e.Site || filepath.Dir(e.Name) == config.KubernetesDir && filepath.Ext(e.Name) == ".conf"
}

// keptLogs are directories of logs, which reset does not remove.
var keptLogs = []string{"/var/log/pods", "/var/log/containers", "/var/log/kubernetes/audit"}

// leftovers lists files in the same directories as Airlift's files that are not in the ledger.
func leftovers(h *host.Host) (Plan, error) {
	listed := map[string]bool{} // what reset removes, and the directories that Airlift created
	roots := []string{config.KubernetesDir}
	for _, kind := range []string{ledger.File, ledger.Binary, ledger.Saved, ledger.Owned, ledger.Contents, ledger.Spared, ledger.Dir} {
		for _, e := range h.Records().Entries(kind) {
			listed[e.Name] = true
			if dir := filepath.Dir(e.Name); !e.Site && slices.Contains([]string{".crt", ".key"}, filepath.Ext(e.Name)) && !slices.Contains(roots, dir) {
				roots = append(roots, dir) // the certificates directory is configurable
			}
			if e.Kind == ledger.Dir {
				roots = append(roots, e.Name)
			}
		}
	}
	for _, e := range h.Records().Entries(ledger.Network) {
		listed[filepath.Join(podnetwork.NetworksDir, e.Name)] = true
	}
	ids, err := podnetwork.Containers(h)
	if err != nil {
		return nil, err
	}
	attachments, err := podnetwork.Attachments(h)
	if err != nil {
		return nil, err
	}
	for _, a := range attachments {
		listed[a.File] = listed[a.File] || ids[a.Container]
	}

	slices.Sort(roots)
	seen := map[string]bool{}
	var plan Plan
	var look func(dir string) error
	look = func(dir string) error {
		if seen[dir] || slices.Contains(keptLogs, dir) || h.Records().IsClaimed(dir) {
			return nil
		}
		seen[dir] = true
		names, err := os.ReadDir(h.Path(dir))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing what stays in %s: %w", dir, err)
		}
		for _, name := range names {
			path := filepath.Join(dir, name.Name())
			_, owned := h.Records().Find(ledger.Owned, path)
			switch {
			case owned || seen[path] || slices.Contains(keptLogs, path) || path == filepath.Clean(ledger.StateDir) || strings.HasPrefix(name.Name(), ".airlift-"):
			case name.IsDir() && (listed[path] || containsListed(path, listed)):
				if err := look(path); err != nil {
					return err
				}
			case !listed[path]:
				plan = append(plan, Item{Act: Leave, What: path, Path: path, Reason: "Airlift did not create it"})
			}
		}
		return nil
	}
	for _, root := range roots {
		if err := look(root); err != nil {
			return nil, err
		}
	}
	plan = append(plan, backups(h)...)
	if !h.Records().RanNode() {
		return plan, nil
	}
	for _, name := range []string{"cni0", "flannel.1", "flannel-v6.1", "kube-ipvs0"} {
		if _, ok := h.Records().Find(ledger.Interface, name); ok {
			continue
		}
		if _, err := netlink.LinkByName(name); err == nil {
			plan = append(plan, Item{Act: Leave, What: "network interface " + name, Reason: "Airlift did not create it; if nothing uses it: ip link delete " + name})
		}
	}
	var kernelState []string
	for _, e := range h.Records().Entries(ledger.Sysctl) {
		kernelState = append(kernelState, "sysctl "+e.Name)
	}
	for _, e := range h.Records().Entries(ledger.Module) {
		kernelState = append(kernelState, "kernel module "+e.Name)
	}
	if _, ok := h.Records().Find(ledger.Unit, kernel.SharedUnit); ok {
		kernelState = append(kernelState, "the shared mount /")
	}
	if len(kernelState) > 0 {
		plan = append(plan, Item{Act: Leave, What: strings.Join(kernelState, ", "), Reason: "other software may use them now; a reboot reverts them"})
	}
	for _, dir := range keptLogs {
		if filesystem.Exists(h.Path(dir)) {
			plan = append(plan, Item{Act: Leave, What: dir, Path: dir, Reason: "logs are kept"})
		}
	}
	if filesystem.Exists(h.Path(release.VolumesDir)) {
		plan = append(plan, Item{Act: Leave, What: release.VolumesDir, Path: release.VolumesDir, Reason: "volumes of the add-on " + release.LocalPathStorage + " are kept; if their data is no longer needed: rm -r " + release.VolumesDir})
	}
	return plan, nil
}

// backups is the item of the backups that upgrades saved, if there are any.
func backups(h *host.Host) Plan {
	if !filesystem.Exists(h.Path(host.UpgradeBackups)) {
		return nil
	}
	return Plan{{Act: Leave, What: host.UpgradeBackups, Path: host.UpgradeBackups, Reason: "backups of the cluster from before upgrades are kept, with all keys of the cluster; if they are no longer needed: rm -r " + host.UpgradeBackups}}
}

// containsListed reports whether one of the listed paths is below a directory.
func containsListed(dir string, listed map[string]bool) bool {
	for path, yes := range listed {
		if yes && strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

// Of returns the items with one of these acts.
func (p Plan) Of(acts ...string) Plan {
	var list Plan
	for _, i := range p {
		if slices.Contains(acts, i.Act) {
			list = append(list, i)
		}
	}
	return list
}

// Left returns the items of a plan that were to be saved or left, and still exist.
func Left(h *host.Host, p Plan) Plan {
	return slices.DeleteFunc(p.Of(Save, Leave), func(i Item) bool { return i.Path != "" && !filesystem.Exists(h.Path(i.Path)) })
}
