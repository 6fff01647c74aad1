package certs

import (
	"fmt"
	"io"
	"path/filepath"

	"airlift/installer/config"
	"airlift/installer/host/filesystem"
	"airlift/installer/pki"
)

// WriteRequests writes keys, certificate signing requests and kubeconfigs of a node for an external CA, and
// prints their paths. dir is the directory of the kubeconfigs.
func (s *Source) WriteRequests(cfg *config.Config, dir string, out io.Writer) error {
	made, err := pki.Requests(cfg, s.FS(), dir)
	if err != nil {
		return err
	}
	for _, file := range made.Files {
		at := filepath.Join(s.Rootfs, file.Path)
		if err := filesystem.OutputDir(filepath.Dir(at), 0o700); err != nil {
			return fmt.Errorf("creating a directory for the requests: %w", err)
		}
		if err := filesystem.WriteOutput(at, file.Data, file.Mode); err != nil {
			return fmt.Errorf("writing %s: %w", file.Path, err)
		}
		if exposed, err := filesystem.Exposed(at); err != nil {
			return err
		} else if exposed && file.Mode == 0o600 {
			s.Warn("other users of this host can read %s, because its file system has no modes", file.Path)
		}
		fmt.Fprintln(out, file.Path)
	}
	return nil
}
