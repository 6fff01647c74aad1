package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/images"
	"airlift/installer/config"
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

// A Plan is what reset does, computed before it changes anything.
type Plan []Item

// Plan lists what reset removes from this host, and what it leaves in the same
// directories. RemoveInterfaces, RemoveNetfilter, RemoveRoutes, RemoveState and
// RemoveInstalled execute it.
func (h Removal) Plan() (Plan, error) {
	plan := Plan{} // not nil: nil means that there is no ledger
	for _, kind := range []string{kindUnit, kindInterface, kindRoute, kindNetwork, kindContents, kindOwned, kindFile, kindBinary, kindSaved, kindSpared} {
		for _, e := range h.host.Records().entries(kind) {
			item, err := h.planned(e)
			if err != nil { // continue with the others
				item = Item{Act: Leave, What: e.Name, Path: e.Name, Reason: err.Error()}
			}
			if item.Act != "" {
				plan = append(plan, item)
			}
		}
	}
	for _, n := range h.host.Records().ImageNames() {
		item := Item{Act: Remove, What: "image name " + n.Name, Reason: "in the containerd at " + n.Socket}
		if n.Before != nil {
			item.Reason += "; its previous image is restored"
		}
		plan = append(plan, item)
	}
	if h.host.Records().RanNode() {
		plan = append(plan, Item{Act: Remove, What: "iptables and nftables rules", Reason: "of Kubernetes, flannel and this node's pods"})
	}
	left, err := h.leftovers()
	return append(plan, left...), err
}

// planned decides what reset does with an entry of the ledger. An Item without
// an Act means that nothing needs to be done.
func (h Removal) planned(e entry) (Item, error) {
	path := h.host.Path(e.Name)
	item := Item{Act: Remove, What: e.Name, Path: e.Name, Reason: e.Contents}
	if e.Contents != "" {
		item.Reason = "it contains " + e.Contents
	}
	switch e.Kind {
	case kindUnit:
		return Item{Act: Remove, What: "systemd unit " + e.Name}, nil
	case kindRoute:
		return Item{Act: Remove, What: "route " + e.Name}, nil
	case kindNetwork:
		return Item{Act: Remove, What: "CNI network " + e.Name, Reason: "its addresses and the records of its pods"}, nil
	case kindInterface:
		if _, err := netlink.LinkByName(e.Name); err != nil {
			return Item{}, nil
		}
		return Item{Act: Remove, What: "network interface " + e.Name}, nil
	case kindContents:
		names, err := h.toEmpty(e.Name)
		if err != nil || len(names) == 0 {
			return Item{}, err
		}
		item.Act = Empty
		return item, nil
	case kindSpared:
		item.Act, item.Reason = Leave, "it existed before init or join"
		return item, nil
	}
	if !exists(path) {
		// putBack still restores the original.
		return Item{}, nil
	}
	switch e.Kind {
	case kindFile:
		if e.Original != "" && !exists(h.host.Path(e.Original)) {
			return Item{}, nil // an interrupted reset restored it already
		}
		ours, err := h.host.isOurs(e)
		if err != nil {
			return Item{}, fmt.Errorf("reading %s: %w", e.Name, err)
		}
		if !ours && !h.regenerated(e.Name) {
			saved := filepath.Join(filepath.Dir(e.Name), filepath.Base(freeName(path)))
			item.Act, item.What, item.Path = Save, saved, saved
			item.Reason = e.Name + " was edited; it is saved under this name"
		}
	case kindSaved:
		if h.inClaimed(e.Name) {
			return Item{}, nil // it goes with the directory
		}
		item.Act, item.Reason = Leave, e.Contents+" was edited, and replaced by a later init or join; this is the edited file"
	case kindBinary:
		sum, err := digestFile(path)
		if err != nil && !errors.Is(err, errNotRegular) {
			return Item{}, fmt.Errorf("reading %s: %w", e.Name, err)
		}
		if err != nil || !e.wrote(sum) {
			item.Act, item.Reason = Leave, "it was replaced after Airlift installed it"
		}
	}
	if e.Original != "" && item.Act == Remove {
		item.Reason = "the original file is restored"
	}
	return item, nil
}

// regenerated reports whether components rewrite a file, so that changed content
// is not a user's edit to save: certificates and kubeconfigs are renewed, static
// pods are upgraded, and claimed directories change all the time.
func (h Removal) regenerated(path string) bool {
	if e, ok := h.host.Records().recorded(kindFile, path); ok && e.Site {
		return false
	}
	if strings.HasPrefix(path, config.KubernetesDir+"/") || slices.Contains([]string{".crt", ".key", ".pub"}, filepath.Ext(path)) {
		return true
	}
	return h.inClaimed(path)
}

// inClaimed reports whether a path is below a directory whose contents are
// Airlift's.
func (h Removal) inClaimed(path string) bool {
	for dir := filepath.Dir(path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if h.host.Records().claimed(dir) {
			return true
		}
	}
	return false
}

// leftovers lists what is in the same directories as Airlift's files and not in
// the ledger.
func (h Removal) leftovers() (Plan, error) {
	listed := map[string]bool{} // what reset removes, and the directories that Airlift created
	roots := []string{config.KubernetesDir}
	for _, kind := range []string{kindFile, kindBinary, kindSaved, kindOwned, kindContents, kindSpared, kindDir} {
		for _, e := range h.host.Records().entries(kind) {
			listed[e.Name] = true
			if dir := filepath.Dir(e.Name); !e.Site && slices.Contains([]string{".crt", ".key"}, filepath.Ext(e.Name)) && !slices.Contains(roots, dir) {
				roots = append(roots, dir) // the certificates directory is configurable
			}
			if e.Kind == kindDir {
				roots = append(roots, e.Name)
			}
		}
	}
	for _, e := range h.host.Records().entries(kindNetwork) {
		listed[filepath.Join(cniNetworks, e.Name)] = true
	}
	ids, err := h.host.Networks().containers()
	if err != nil {
		return nil, err
	}
	attachments, err := h.host.Networks().attachments()
	if err != nil {
		return nil, err
	}
	for _, a := range attachments {
		listed[a.file] = listed[a.file] || ids[a.Container]
	}

	slices.Sort(roots)
	seen := map[string]bool{}
	var plan Plan
	var look func(dir string) error
	look = func(dir string) error {
		if seen[dir] || h.host.Records().claimed(dir) {
			return nil
		}
		seen[dir] = true
		names, err := os.ReadDir(h.host.Path(dir))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing what stays in %s: %w", dir, err)
		}
		for _, name := range names {
			path := filepath.Join(dir, name.Name())
			_, owned := h.host.Records().recorded(kindOwned, path)
			switch {
			case owned || seen[path] || path == filepath.Clean(StateDir) || strings.HasPrefix(name.Name(), ".airlift-"):
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
	if exists(h.host.Path(UpgradeBackups)) {
		plan = append(plan, Item{Act: Leave, What: UpgradeBackups, Path: UpgradeBackups, Reason: "backups of the cluster from before upgrades are kept, with all keys of the cluster; if they are no longer needed: rm -r " + UpgradeBackups})
	}
	if !h.host.Records().RanNode() {
		return plan, nil
	}
	for _, name := range []string{"cni0", "flannel.1", "flannel-v6.1", "kube-ipvs0"} {
		if _, ok := h.host.Records().recorded(kindInterface, name); ok {
			continue
		}
		if _, err := netlink.LinkByName(name); err == nil {
			plan = append(plan, Item{Act: Leave, What: "network interface " + name, Reason: "Airlift did not create it; if nothing uses it: ip link delete " + name})
		}
	}
	var kernelState []string
	for _, e := range h.host.Records().entries(kindSysctl) {
		kernelState = append(kernelState, "sysctl "+e.Name)
	}
	for _, e := range h.host.Records().entries(kindModule) {
		kernelState = append(kernelState, "kernel module "+e.Name)
	}
	if _, ok := h.host.Records().recorded(kindUnit, sharedUnit); ok {
		kernelState = append(kernelState, "the shared mount /")
	}
	if len(kernelState) > 0 {
		plan = append(plan, Item{Act: Leave, What: strings.Join(kernelState, ", "), Reason: "other software may use them now; a reboot reverts them"})
	}
	for _, dir := range []string{"/var/log/pods", "/var/log/containers"} {
		if exists(h.host.Path(dir)) {
			plan = append(plan, Item{Act: Leave, What: dir, Path: dir, Reason: "logs are kept"})
		}
	}
	if exists(h.host.Path(images.VolumesDir)) {
		plan = append(plan, Item{Act: Leave, What: images.VolumesDir, Path: images.VolumesDir, Reason: "volumes of the add-on " + images.LocalPathStorage + " are kept; if their data is no longer needed: rm -r " + images.VolumesDir})
	}
	return plan, nil
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
func (h Removal) Left(p Plan) Plan {
	return slices.DeleteFunc(p.Of(Save, Leave), func(i Item) bool { return i.Path != "" && !exists(h.host.Path(i.Path)) })
}
