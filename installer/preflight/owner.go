package preflight

import (
	"context"
	"path/filepath"
	"slices"

	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/internal/fault"
)

// dirOwner requires every directory that files are written to, and those above
// it, to belong to root: another user's directory could redirect root's writes.
// A release archive that root unpacked may have created such a directory, with
// the owner from the archive.
func (s fileChecks) dirOwner(context.Context) []finding {
	dirs := s.configDirs()
	if s.subject.runsEtcd() {
		dirs = append(dirs, s.subject.Config.Etcd.Local.DataDir)
	}
	for _, b := range s.subject.Binaries {
		dirs = append(dirs, filepath.Dir(b.Path))
	}
	var found []finding
	for _, dir := range slices.Compact(slices.Sorted(slices.Values(dirs))) {
		if dir == "" {
			continue
		}
		err := s.subject.host.CheckDir(dir)
		if err == nil || slices.ContainsFunc(found, func(f finding) bool { return f.message == err.Error() }) {
			continue
		}
		found = append(found, problem(fault.Hint(err), "%v", err)...)
	}
	return found
}

// configDirs are the directories of configuration files and of the ledger.
func (s fileChecks) configDirs() []string {
	return []string{
		ledger.StateDir, config.KubernetesDir, config.ManifestsDir, s.subject.Config.CertificatesDir, config.KubeletDir, config.CNIConfDir,
		"/etc/systemd/system", "/etc/sysctl.d", "/etc/modules-load.d",
	}
}
