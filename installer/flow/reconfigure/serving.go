package reconfigure

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"airlift/installer/host/filesystem"
	"airlift/installer/phases"
	"airlift/installer/pki"
)

// servingNames are the names of the certificates whose names the configuration has, on this host.
func (r *Reconfigure) servingNames() []string {
	if !r.IsControlPlane() {
		return nil
	}
	if r.Config.Etcd.External != nil {
		return []string{"apiserver"}
	}
	return []string{"apiserver", "etcd-server", "etcd-peer"}
}

// renamed returns the files of a certificate with the names of the configuration, none if it has them.
func (r *Reconfigure) renamed(name string) ([]pki.File, error) {
	own := r.Config
	removed := map[string][]string{"apiserver": own.Reconfiguration.Removed.APIServer, "etcd-server": own.Reconfiguration.Removed.EtcdServer, "etcd-peer": own.Reconfiguration.Removed.EtcdPeer}
	made, err := pki.Rename(own, r.Files(), time.Now(), name, removed[name]...)
	return made.Files, err
}

// A PlannedCertificate is a certificate of this host that gets other names.
type PlannedCertificate struct {
	File    string   `json:"file"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
}

// plannedCertificates lists the certificates that get other names.
func (r *Reconfigure) plannedCertificates() (list []PlannedCertificate, err error) {
	for _, name := range r.servingNames() {
		files, err := r.renamed(name)
		if err != nil || len(files) == 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		file := files[len(files)-1]
		now, err := fs.ReadFile(r.Files(), strings.TrimPrefix(file.Path, "/"))
		if err != nil {
			return nil, err
		}
		was, err := pki.ServingNames(now)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.Path, err)
		}
		is, err := pki.ServingNames(file.Data)
		if err != nil {
			return nil, err
		}
		list = append(list, PlannedCertificate{File: file.Path, Added: without(is, was), Removed: without(was, is)})
	}
	return list, nil
}

// without returns the items of a list that another one does not have, [] for none.
func without(list, other []string) []string {
	left := []string{}
	for _, item := range list {
		if !slices.Contains(other, item) {
			left = append(left, item)
		}
	}
	return left
}

// renameCertificates writes the certificates with other names. The API server and etcd read them again by themselves.
func (r *Reconfigure) renameCertificates(ctx context.Context) error {
	api := false
	for _, name := range r.servingNames() {
		files, err := r.renamed(name)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := r.Keep(f.Path); err != nil {
				return err
			}
			if r.Record.Certificates == nil {
				r.Record.Certificates = map[string]string{}
			}
			r.Record.Certificates[f.Path] = filesystem.Digest(f.Data)
			if err := r.WriteRecord(); err != nil {
				return err
			}
			if err := r.Host.RenewFile(f.Path, f.Data, f.Mode); err != nil {
				return err
			}
			r.Console.Debug(1, "wrote %s", f.Path)
			r.Changed(true)
			api = api || name == "apiserver"
		}
	}
	if !api && !r.Unfinished() || !r.IsControlPlane() {
		return nil
	}
	return phases.WaitServed(ctx, r.Machine, r.Config, func(ctx context.Context) error { return r.Pods.Restart(ctx, "kube-apiserver") })
}
