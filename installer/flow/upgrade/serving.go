package upgrade

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

// serving are the certificates whose names the configuration has.
type serving struct{ change *change }

// names are the names of the certificates on this host.
func (s serving) names() []string {
	if !s.change.isControlPlane() {
		return nil
	}
	if s.change.config().Etcd.External != nil {
		return []string{"apiserver"}
	}
	return []string{"apiserver", "etcd-server", "etcd-peer"}
}

// renamed returns the files of a certificate with the names of the configuration, none if it has them.
func (s serving) renamed(name string) ([]pki.File, error) {
	own := s.change.config()
	removed := map[string][]string{"apiserver": own.Reconfiguration.Removed.APIServer, "etcd-server": own.Reconfiguration.Removed.EtcdServer, "etcd-peer": own.Reconfiguration.Removed.EtcdPeer}
	made, err := pki.Rename(own, s.change.run.facts.node.Files(), time.Now(), name, removed[name]...)
	return made.Files, err
}

// A PlannedCertificate is a certificate of this host that gets other names.
type PlannedCertificate struct {
	File    string   `json:"file"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
}

// planned lists the certificates that get other names.
func (s serving) planned() (list []PlannedCertificate, err error) {
	for _, name := range s.names() {
		files, err := s.renamed(name)
		if err != nil || len(files) == 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		file := files[len(files)-1]
		now, err := fs.ReadFile(s.change.run.facts.node.Files(), strings.TrimPrefix(file.Path, "/"))
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

// rename writes the certificates with other names. The API server and etcd read them again by themselves.
func (s serving) rename(ctx context.Context) error {
	r, m := s.change.run.record, s.change.run.facts.node
	api := false
	for _, name := range s.names() {
		files, err := s.renamed(name)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := r.begin(); err != nil {
				return err
			}
			if err := r.former().Keep(f.Path); err != nil {
				return err
			}
			if r.state.Certificates == nil {
				r.state.Certificates = map[string]string{}
			}
			r.state.Certificates[f.Path] = filesystem.Digest(f.Data)
			if err := r.write(); err != nil {
				return err
			}
			if err := m.Host.RenewFile(f.Path, f.Data, f.Mode); err != nil {
				return err
			}
			m.Console.Debug(1, "wrote %s", f.Path)
			m.Changed(true)
			api = api || name == "apiserver"
		}
	}
	if !api && !r.unfinished() || !m.IsControlPlane() {
		return nil
	}
	err := phases.WaitServed(ctx, m.Machine, s.change.config())
	if err == nil || ctx.Err() != nil {
		return err
	}
	m.Console.Warn("the API server does not read its certificate again: it is restarted (%v)", err)
	if err := s.change.run.controlPlane.pods.Restart(ctx, "kube-apiserver"); err != nil {
		return err
	}
	return phases.WaitServed(ctx, m.Machine, s.change.config())
}
