package initcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/desired"
	"airlift/installer/pki"
	"airlift/installer/profile"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
	"airlift/installer/serving"
	"airlift/installer/workflow"
)

// withProfile adds the files of the profile to the step of the API server, which reads them. A file that exists stays: a
// reconfiguration may have replaced it.
func (i *Init) withProfile(s workflow.Step) workflow.Step {
	pod := s.Desired
	s.Desired = func(ctx context.Context) (l desired.List, err error) {
		for _, f := range profile.Files(&i.node.Config.Cluster) {
			if _, err := i.read(f.Path); errors.Is(err, fs.ErrNotExist) {
				l.Files = append(l.Files, pki.File{Path: f.Path, Data: f.Data, Mode: 0o600})
			} else if err != nil {
				return l, err
			}
		}
		own, err := pod(ctx)
		return l.Add(own), err
	}
	return s
}

// profileStep returns the step that stores the files for other control planes, takes the tokens from the default
// ServiceAccounts, and starts the approval of the kubelets' serving certificates.
func (i *Init) profileStep() workflow.Step {
	return workflow.Step{Name: "profile", Doc: "store the files of the profile, if there is one", Prepare: i.access.admin, Desired: i.profileObjects, Apply: i.applyProfile}
}

// profileObjects returns the files and objects of that approval, the ServiceAccounts and, as the last object, the Secret with the files: nothing without a profile.
func (i *Init) profileObjects(ctx context.Context) (l desired.List, err error) {
	if !profile.Used(&i.node.Config.Cluster) {
		return l, nil
	}
	if l, err = i.node.ServingFiles(ctx); err != nil {
		return l, err
	}
	l.Objects = profile.DefaultAccounts()
	if len(l.Files) > 0 {
		l.Objects = append(l.Objects, serving.Objects()...)
	}
	files := profile.Files(&i.node.Config.Cluster)
	for n, f := range files {
		switch now, err := i.read(f.Path); {
		case err == nil:
			files[n].Data = now
		case !errors.Is(err, fs.ErrNotExist):
			return l, err
		}
	}
	key, err := i.saKey()
	if err != nil {
		return l, fmt.Errorf("reading sa.key: %w", err)
	}
	sealed, err := reconfiguration.Seal(key, files)
	return l.Add(desired.List{Objects: render.UploadFiles(sealed)}), err
}

// applyProfile applies the objects. A Secret that exists stays: it may have other files, too.
func (i *Init) applyProfile(ctx context.Context, l desired.List) error {
	if len(l.Objects) == 0 {
		return nil
	}
	kept, err := cluster.SharedFiles(ctx, i.api.Client.API, i.saKey)
	if err != nil {
		return err
	}
	if len(kept) > 0 {
		l.Objects = l.Objects[:len(l.Objects)-1]
	}
	if err := i.api.Apply(ctx, l); err != nil {
		return err
	}
	return i.node.StartServing(ctx, l)
}

func (i *Init) saKey() ([]byte, error) {
	return i.read(path.Join(i.node.Config.CertificatesDir, "sa.key"))
}

func (i *Init) read(file string) ([]byte, error) {
	return fs.ReadFile(i.Files(), strings.TrimPrefix(file, "/"))
}
