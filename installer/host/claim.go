package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/installer/config"
)

// Kinds of the ledger for what the programs that init starts create. Each is
// recorded before they start, and only where the thing was not there before:
// that alone makes it Airlift's.
const (
	kindOwned    = "owned"    // a file or directory that was missing; goes with all it holds
	kindContents = "contents" // a directory that was empty; it is emptied, and stays
	kindSpared   = "spared"   // was there before and is used; it stays
)

// EtcdData is what the claim of etcd's data directory holds.
const EtcdData = "etcd's data"

// A Claim is a directory that programs fill after init or join starts them.
type Claim struct {
	Path  string
	Holds string // for people: "etcd's data"
	// Allowed are names in it that users put there before. They stay.
	Allowed []string
	Fix     string // what to do where it is not empty
}

// Check is the name of the claim's preflight check, as kubeadm forms it.
func (c Claim) Check() string { return "DirAvailable-" + strings.ReplaceAll(c.Path, "/", "-") }

// Claims lists the directories that a node's programs fill.
func Claims(cfg *config.Config, controlPlane, ownRuntime bool) []Claim {
	const moveAway = "look whose data it is; if this host was a node before, clean it with `install reset` (or `kubeadm reset`), or move it away: "
	away := func(path string) string { return moveAway + "mv " + path + " " + path + ".before" }
	var list []Claim
	if controlPlane && cfg.Etcd.External == nil {
		dir := cfg.Etcd.Local.DataDir
		if dir == "" {
			dir = config.EtcdDataDir
		}
		list = append(list, Claim{Path: dir, Holds: EtcdData, Fix: away(dir)})
	}
	list = append(list, Claim{Path: config.KubeletDir, Holds: "the kubelet's state", Fix: away(config.KubeletDir),
		// Registry credentials and seccomp profiles, where the kubelet looks for them.
		Allowed: []string{"config.json", "seccomp"}})
	if ownRuntime {
		const data = "/var/lib/containerd"
		list = append(list,
			Claim{Path: data, Holds: "containerd's images and containers",
				Fix: "if a containerd of this host is only stopped, start it, so that init uses it: systemctl start containerd; or move its data away: mv " + data + " " + data + ".before"},
			Claim{Path: "/run/containerd", Holds: "containerd's running state",
				Fix: "if a containerd of this host is only stopped, start it, so that init uses it: systemctl start containerd; or remove what it left: rm -r /run/containerd"})
	}
	if cfg.CNI == "flannel" {
		list = append(list, Claim{Path: "/run/flannel", Holds: "flannel's subnet file", Fix: "stop the flanneld that uses it, then: rm -r /run/flannel"})
	}
	return list
}

// Claimable reports why a claim's directory cannot become Airlift's: it holds
// what was there before. It changes nothing.
func (h *Host) Claimable(c Claim) error {
	_, err := h.claimable(c)
	return err
}

// claimable also returns the entries to record; none where they are recorded.
func (h *Host) claimable(c Claim) ([]entry, error) {
	path := filepath.Clean(c.Path)
	for _, kind := range []string{kindOwned, kindContents, kindSpared} {
		if _, ok := h.recorded(kind, path); ok {
			return nil, nil
		}
	}
	owned := []entry{{Kind: kindOwned, Name: path, Holds: c.Holds}}
	if _, ok := h.recorded(kindDir, path); ok {
		return owned, nil
	}
	if _, err := os.Lstat(h.Path(path)); errors.Is(err, fs.ErrNotExist) {
		return owned, nil
	}
	names, err := os.ReadDir(h.Path(path))
	if err != nil {
		return nil, fault.New(fault.Preflight, "make it a directory that root can read", "looking at %s: %w", path, err)
	}
	var entries []entry
	for _, name := range names {
		if name.Name() == lostAndFound {
			continue
		}
		if !slices.Contains(c.Allowed, name.Name()) {
			return nil, fault.New(fault.Preflight, c.Fix,
				"%s is not empty (it holds %s): init or join would take over data that Airlift did not create", path, name.Name())
		}
		entries = append(entries, entry{Kind: kindSpared, Name: filepath.Join(path, name.Name())})
	}
	// The contents are Airlift's only when what stays is recorded.
	return append(entries, entry{Kind: kindContents, Name: path, Holds: c.Holds}), nil
}

// lostAndFound is all that a newly formatted disk holds.
const lostAndFound = "lost+found"

// Claim records that what programs are about to create in a directory is
// Airlift's, as far as it was not there before. Where it holds something
// already, nothing is recorded and the error tells what to do.
func (h *Host) Claim(c Claim) error {
	entries, err := h.claimable(c)
	if err != nil {
		return err
	}
	if err := h.MkdirAll(filepath.Dir(filepath.Clean(c.Path)), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := h.record(e); err != nil {
			return err
		}
	}
	return nil
}

// Spare records that a directory was there before and is used all the same:
// reset leaves it.
func (h *Host) Spare(c Claim) error {
	return h.record(entry{Kind: kindSpared, Name: filepath.Clean(c.Path), Holds: c.Holds})
}

// ClaimFile records that a file which a program is about to create is
// Airlift's. One that is there already is not.
func (h *Host) ClaimFile(path string) error {
	if _, err := os.Lstat(h.Path(path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return h.own(path)
}

func (h *Host) own(path string) error { return h.record(entry{Kind: kindOwned, Name: path}) }

// Claimed returns the path of the claim that holds this, "" where there is none.
func (h *Host) Claimed(holds string) string {
	for _, kind := range []string{kindOwned, kindContents} {
		for _, e := range h.entries(kind) {
			if e.Holds == holds {
				return e.Name
			}
		}
	}
	return ""
}

// claimed says whether what is below a directory is Airlift's.
func (h *Host) claimed(path string) bool {
	_, owned := h.recorded(kindOwned, path)
	_, contents := h.recorded(kindContents, path)
	return owned || contents
}

// RanNode says whether init or join prepared this host for a kubelet.
func (h *Host) RanNode() bool {
	_, spared := h.recorded(kindSpared, config.KubeletDir)
	_, unit := h.recorded(kindUnit, "kubelet.service")
	return spared || unit || h.claimed(config.KubeletDir)
}
