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

// Kinds of ledger entries for what the processes that init starts create. Each
// entry is recorded before they start, and only if the path did not exist
// before: only then it belongs to Airlift.
const (
	kindOwned    = "owned"    // a file or directory that was missing: reset removes it with its contents
	kindContents = "contents" // a directory that was empty: reset empties it
	kindSpared   = "spared"   // existed before and is used: reset keeps it
)

// EtcdData is the Contents of the claim of etcd's data directory.
const EtcdData = "etcd's data"

// A Claim is a directory that Kubernetes components fill after init or join has
// started them.
type Claim struct {
	Path     string
	Contents string // for people: "etcd's data"
	// Allowed are names in it that users may have created before. Reset
	// keeps them.
	Allowed []string
	Fix     string // what to do if it is not empty
}

// Check is the name of the claim's preflight check, as kubeadm forms it.
func (c Claim) Check() string { return "DirAvailable-" + strings.ReplaceAll(c.Path, "/", "-") }

// Claims lists the directories that a node's components fill. ownEtcd reports
// whether the node has a stacked etcd, ownRuntime whether it uses the
// bundle's containerd.
func Claims(cfg *config.Config, ownEtcd, ownRuntime bool) []Claim {
	const moveAway = "check which software uses the data; if this host was a node before, run `./install reset` (or `kubeadm reset`); otherwise move the data away: "
	away := func(path string) string {
		return moveAway + "mv " + fault.Word(path) + " " + fault.Word(path+".before")
	}
	var list []Claim
	if ownEtcd {
		dir := cfg.Etcd.Local.DataDir
		if dir == "" {
			dir = config.EtcdDataDir
		}
		list = append(list, Claim{Path: dir, Contents: EtcdData, Fix: away(dir)})
	}
	list = append(list, Claim{Path: config.KubeletDir, Contents: "the kubelet's state", Fix: away(config.KubeletDir),
		// The kubelet reads registry credentials and seccomp profiles here.
		Allowed: []string{"config.json", "seccomp"}})
	if ownRuntime {
		const data = "/var/lib/containerd"
		list = append(list,
			Claim{Path: data, Contents: "containerd's images and containers",
				Fix: "if this host has its own containerd and it is stopped, start it so that init uses it: systemctl start containerd; otherwise move its data away: mv " + data + " " + data + ".before"},
			Claim{Path: "/run/containerd", Contents: "containerd's running state",
				Fix: "if this host has its own containerd and it is stopped, start it so that init uses it: systemctl start containerd; otherwise remove its leftovers: rm -r /run/containerd"})
	}
	if cfg.CNI == "flannel" {
		list = append(list, Claim{Path: "/run/flannel", Contents: "flannel's subnet file", Fix: "stop the flanneld that uses it, then: rm -r /run/flannel"})
	}
	return list
}

// Claimable returns why Airlift cannot claim a directory: it is not empty. It
// changes nothing.
func (h Records) Claimable(c Claim) error {
	_, err := h.claimable(c)
	return err
}

// claimable also returns the entries to record; none if they are recorded already.
func (h Records) claimable(c Claim) ([]entry, error) {
	path := filepath.Clean(c.Path)
	for _, kind := range []string{kindOwned, kindContents, kindSpared} {
		if _, ok := h.recorded(kind, path); ok {
			return nil, nil
		}
	}
	owned := []entry{{Kind: kindOwned, Name: path, Contents: c.Contents}}
	if _, ok := h.recorded(kindDir, path); ok {
		return owned, nil
	}
	if _, err := os.Lstat(h.host.Path(path)); errors.Is(err, fs.ErrNotExist) {
		return owned, nil
	}
	names, err := os.ReadDir(h.host.Path(path))
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(h.host.Path(path))
	}
	if err != nil {
		return nil, fault.New(fault.Preflight, "reading %s: %w", path, err).Hint("make it a directory that root can read")
	}
	var entries []entry
	for _, name := range names {
		if name.Name() == lostAndFound {
			continue
		}
		if !slices.Contains(c.Allowed, name.Name()) {
			return nil, fault.New(fault.Preflight, "%s is not empty (it contains %s): init or join would use data that Airlift did not create", path, name.Name()).
				Hint(c.Fix)
		}
		entries = append(entries, entry{Kind: kindSpared, Name: filepath.Join(path, name.Name())})
	}
	// Record what reset keeps before the entry that empties the directory.
	return append(entries, entry{Kind: kindContents, Name: path, Contents: c.Contents, Mode: info.Mode() &^ fs.ModeDir}), nil
}

// lostAndFound is the only entry of a newly formatted disk.
const lostAndFound = "lost+found"

// Claim records that the files about to be created in a directory are Airlift's.
// If the directory is not empty, nothing is recorded and the error has a hint.
func (h Records) Claim(c Claim) error {
	entries, err := h.claimable(c)
	if err != nil {
		return err
	}
	if err := h.host.MkdirAll(filepath.Dir(filepath.Clean(c.Path)), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := h.record(e); err != nil {
			return err
		}
	}
	return nil
}

// Spare records that an existing directory is used although it is not empty:
// reset keeps it.
func (h Records) Spare(c Claim) error {
	return h.record(entry{Kind: kindSpared, Name: filepath.Clean(c.Path), Contents: c.Contents})
}

// ClaimFile records that a file that is about to be created is Airlift's, unless
// it exists already.
func (h Records) ClaimFile(path string) error {
	if _, err := os.Lstat(h.host.Path(path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return h.own(path)
}

func (h Records) own(path string) error { return h.record(entry{Kind: kindOwned, Name: path}) }

// Claimed returns the path of the claim with these contents, or "".
func (h Records) Claimed(contents string) string {
	for _, kind := range []string{kindOwned, kindContents} {
		for _, e := range h.entries(kind) {
			if e.Contents == contents {
				return e.Name
			}
		}
	}
	return ""
}

// claimed reports whether the contents of a directory are Airlift's.
func (h Records) claimed(path string) bool {
	_, owned := h.recorded(kindOwned, path)
	_, contents := h.recorded(kindContents, path)
	return owned || contents
}

// RanNode reports whether init or join prepared this host for a kubelet.
func (h Records) RanNode() bool {
	_, spared := h.recorded(kindSpared, config.KubeletDir)
	_, unit := h.recorded(kindUnit, "kubelet.service")
	return spared || unit || h.claimed(config.KubeletDir)
}
