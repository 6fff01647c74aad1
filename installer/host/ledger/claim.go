package ledger

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// Kinds of ledger entries for paths that the processes started by init create. Each entry is
// recorded before the processes start.
const (
	Owned    = "owned"    // a file or directory that was missing: reset removes it with its contents
	Contents = "contents" // a directory that was empty: reset empties it
	Spared   = "spared"   // existed before and is used: reset keeps it
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
		dir = cmp.Or(dir, config.EtcdDataDir)
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

// Claimable returns the entries that record Airlift's claim to a directory; none if they are
// recorded already. It is an error if the directory is not empty. It changes nothing.
func (r *Records) Claimable(c Claim) ([]Entry, error) {
	path := filepath.Clean(c.Path)
	for _, kind := range []string{Owned, Contents, Spared} {
		if _, ok := r.Find(kind, path); ok {
			return nil, nil
		}
	}
	owned := []Entry{{Kind: Owned, Name: path, Contents: c.Contents}}
	if _, ok := r.Find(Dir, path); ok {
		return owned, nil
	}
	if _, err := os.Lstat(r.root.Path(path)); errors.Is(err, fs.ErrNotExist) {
		return owned, nil
	}
	names, err := os.ReadDir(r.root.Path(path))
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(r.root.Path(path))
	}
	if err != nil {
		return nil, fault.New(fault.Preflight, "reading %s: %w", path, err).Hint("make it a directory that root can read")
	}
	var entries []Entry
	for _, name := range names {
		if name.Name() == LostAndFound {
			continue
		}
		if !slices.Contains(c.Allowed, name.Name()) {
			return nil, fault.New(fault.Preflight, "%s is not empty (it contains %s): init or join would use data that Airlift did not create", path, name.Name()).
				Hint(c.Fix)
		}
		entries = append(entries, Entry{Kind: Spared, Name: filepath.Join(path, name.Name())})
	}
	// Record what reset keeps before the entry that empties the directory.
	return append(entries, Entry{Kind: Contents, Name: path, Contents: c.Contents, Mode: info.Mode() &^ fs.ModeDir}), nil
}

// LostAndFound is the only entry of a newly formatted disk.
const LostAndFound = "lost+found"

// Spare records that an existing directory is used although it is not empty:
// reset keeps it.
func (r *Records) Spare(c Claim) error {
	return r.Record(Entry{Kind: Spared, Name: filepath.Clean(c.Path), Contents: c.Contents})
}

// ClaimFile records that a file that is about to be created is Airlift's, unless
// it exists already.
func (r *Records) ClaimFile(path string) error {
	if _, err := os.Lstat(r.root.Path(path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.own(path)
}

func (r *Records) own(path string) error { return r.Record(Entry{Kind: Owned, Name: path}) }

// Claimed returns the path of the claim with these contents, or "".
func (r *Records) Claimed(contents string) string {
	for _, kind := range []string{Owned, Contents} {
		for _, e := range r.Entries(kind) {
			if e.Contents == contents {
				return e.Name
			}
		}
	}
	return ""
}

// IsClaimed reports whether the contents of a directory are Airlift's.
func (r *Records) IsClaimed(path string) bool {
	_, owned := r.Find(Owned, path)
	_, contents := r.Find(Contents, path)
	return owned || contents
}

// RanNode reports whether init or join prepared this host for a kubelet.
func (r *Records) RanNode() bool {
	_, spared := r.Find(Spared, config.KubeletDir)
	_, unit := r.Find(Unit, "kubelet.service")
	return spared || unit || r.IsClaimed(config.KubeletDir)
}

// Regenerated reports whether components rewrite a file, so that changed content
// is not a user's edit to save: certificates and kubeconfigs are renewed, static
// pods are upgraded, and claimed directories change all the time.
func (r *Records) Regenerated(path string) bool {
	if e, ok := r.Find(File, path); ok && e.Site {
		return false
	}
	if strings.HasPrefix(path, config.KubernetesDir+"/") || slices.Contains([]string{".crt", ".key", ".pub"}, filepath.Ext(path)) {
		return true
	}
	return r.InClaimed(path)
}

// InClaimed reports whether a path is below a directory whose contents are
// Airlift's.
func (r *Records) InClaimed(path string) bool {
	for dir := filepath.Dir(path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if r.IsClaimed(dir) {
			return true
		}
	}
	return false
}
