package snapshot

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/installer/backup"
	"airlift/installer/config"
)

// ComponentFiles returns the paths of the host's files that the configuration gives to the control
// plane's components: files that a flag names in a mounted volume, and each volume, which may be
// one file. It does not find files that are only named inside of such files.
func ComponentFiles(c *config.Cluster) []string {
	var files []string
	certificates := cmp.Or(c.CertificatesDir, config.CertificatesDir)
	for _, one := range []config.Component{c.APIServer.Component, c.ControllerManager, c.Scheduler} {
		volumes := append(slices.Clone(one.ExtraVolumes), config.HostPathMount{HostPath: certificates, MountPath: certificates})
		for _, v := range volumes {
			files = append(files, path.Clean(v.HostPath))
			for _, arg := range one.ExtraArgs {
				inner, ok := strings.CutPrefix(path.Clean(arg.Value), path.Clean(v.MountPath)+"/")
				if ok && path.IsAbs(arg.Value) && arg.Name != "audit-log-path" {
					files = append(files, path.Join(v.HostPath, inner))
				}
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// componentFiles returns the control plane's files that exist on this host and are not in shared.
func (b *Backup) componentFiles(c *config.Cluster, shared []backup.File) (files []backup.File, err error) {
	for _, file := range ComponentFiles(c) {
		info, err := os.Stat(b.Host.Path(file))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.Size() > backup.MaxFile {
			b.Console.Warn("%s is larger than %d bytes, so it is not in the backup: keep a copy", file, backup.MaxFile)
			continue
		}
		name, ok := strings.CutPrefix(file, cmp.Or(c.CertificatesDir, config.CertificatesDir)+"/")
		if ok && slices.ContainsFunc(shared, func(f backup.File) bool { return f.Name == backup.PKIDir+name }) {
			continue
		}
		data, err := os.ReadFile(b.Host.Path(file))
		if err != nil {
			return nil, err
		}
		files = append(files, backup.File{Name: backup.FilesDir + strings.TrimPrefix(file, "/"), Data: data})
	}
	return files, nil
}
