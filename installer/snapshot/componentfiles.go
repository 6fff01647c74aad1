package snapshot

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/reconfiguration"
)

// componentFiles returns the control plane's files that exist on this host and are not in shared.
func (b *Backup) componentFiles(c *config.Cluster, shared []backup.File) (files []backup.File, err error) {
	for _, file := range reconfiguration.ComponentFiles(c) {
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
