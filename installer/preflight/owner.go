package preflight

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/profile"
	"airlift/internal/fault"
	"airlift/internal/hostpath"
)

// dirOwner requires every directory that files are written to, and those above
// it, to belong to root: another user's directory could redirect root's writes.
// A release archive that root unpacked may have created such a directory, with
// the owner from the archive.
func (s *subject) dirOwner(context.Context) []Problem {
	dirs := s.configDirs()
	if s.runsEtcd() {
		data := s.Config.Etcd.Local.DataDir
		if s.ownedByEtcd(data) { // only etcd writes there
			data = filepath.Dir(data)
		}
		dirs = append(dirs, data)
	}
	for _, b := range s.Binaries {
		dirs = append(dirs, filepath.Dir(b.Path))
	}
	var found []Problem
	for _, dir := range slices.Compact(slices.Sorted(slices.Values(dirs))) {
		if dir == "" {
			continue
		}
		err := s.host.CheckDir(dir)
		if err == nil || slices.ContainsFunc(found, func(f Problem) bool { return f.Message == err.Error() }) {
			continue
		}
		found = append(found, Fail(fault.Hint(err), "%v", err)...)
	}
	return found
}

// configDirs are the directories of configuration files and of the ledger.
func (s *subject) configDirs() []string {
	return append(hostpath.EtcDirs(), ledger.StateDir, config.KubernetesDir, config.ManifestsDir, s.Config.CertificatesDir, config.KubeletDir)
}

// ownedByEtcd reports whether a directory belongs to the user that runs etcd in a cluster with the profile.
func (s *subject) ownedByEtcd(dir string) bool {
	etcd, known, _, err := s.host.FindAccount(host.EtcdAccount)
	info, missing := os.Lstat(s.host.Path(dir))
	return err == nil && missing == nil && known && profile.Used(&s.Config.Cluster) && host.OwnerOf(info).UID == etcd.UID
}
