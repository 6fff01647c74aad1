package reconfigure

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host/filesystem"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
)

// readFiles reads the files that the cluster keeps: files that the flags of a control plane's components name, and that
// reconfigurations bring to all control planes.
func (r *Reconfigure) readFiles(ctx context.Context) (err error) {
	if r.filesBefore, err = cluster.SharedFiles(ctx, r.API.Client.API, r.saKey); err != nil {
		return err
	}
	own := &r.Config.Cluster
	r.files = reconfiguration.Replace(r.filesBefore, slices.Concat(r.profileFiles(), r.options.Files), func(path string) bool { return len(reconfiguration.UsersOf(own, path)) > 0 })
	return nil
}

// saKey returns sa.key, which all control planes have.
func (r *Reconfigure) saKey() ([]byte, error) {
	return fs.ReadFile(r.Files(), strings.TrimPrefix(path.Join(r.Config.CertificatesDir, "sa.key"), "/"))
}

// changesFiles reports whether the cluster keeps other files afterwards.
func (r *Reconfigure) changesFiles() bool { return !reconfiguration.EqualFiles(r.filesBefore, r.files) }

// writtenFiles returns the files that this run writes to the host. A file that does not change, that the user does not give, and that was
// edited by hand, stays.
func (r *Reconfigure) writtenFiles() (list []pki.File) {
	all := r.options.Node || r.options.Restore || r.Unfinished()
	for _, f := range r.files {
		same := slices.ContainsFunc(r.filesBefore, func(b reconfiguration.File) bool {
			return reconfiguration.EqualFiles([]reconfiguration.File{b}, []reconfiguration.File{f})
		})
		given := slices.ContainsFunc(r.options.Files, func(g reconfiguration.File) bool { return g.Path == f.Path })
		if all || !same || given || !r.exists(f.Path) {
			list = append(list, pki.File{Path: f.Path, Data: f.Data, Mode: 0o600})
		}
	}
	return list
}

func (r *Reconfigure) desiredFiles(context.Context) (desired.List, error) {
	return desired.List{Files: r.writtenFiles()}, nil
}

// writeFiles writes the files. A component that reads them restarts later.
func (r *Reconfigure) writeFiles(ctx context.Context, l desired.List) error {
	if err := r.leaveEncryption(ctx); err != nil {
		return err
	}
	if _, err := r.WriteKept(l.Files...); err != nil || !r.IsControlPlane() {
		return err
	}
	return phases.MakeAuditDir(r.Host, &r.Config.Cluster)
}

// filesSecret returns the Secret with the files, if they change.
func (r *Reconfigure) filesSecret() (desired.List, error) {
	if !r.changesFiles() {
		return desired.List{}, nil
	}
	key, err := r.saKey()
	if err != nil {
		return desired.List{}, fmt.Errorf("reading sa.key: %w", err)
	}
	data, err := reconfiguration.Seal(key, r.files)
	return desired.List{Objects: render.UploadFiles(data)}, err
}

// fileProblems returns what is wrong with the files that the user gives, and which files are missing.
func (r *Reconfigure) fileProblems() (list []preflight.Problem) {
	own := r.Config
	for _, f := range r.options.Files {
		switch {
		case len(reconfiguration.UsersOf(&own.Cluster, f.Path)) == 0:
			list = append(list, preflight.Problem{Name: "Files", Message: fmt.Sprintf("--file %s: no component of the control plane mounts it", f.Path),
				Fix: "mount its directory: extraVolumes of apiServer, controllerManager or scheduler in ClusterConfiguration; or remove --file"})
		case r.isManaged(f.Path):
			list = append(list, preflight.Problem{Name: "Files", Message: fmt.Sprintf("--file %s: Airlift and the components manage this file", f.Path),
				Fix: "choose another path"})
		}
	}
	for _, u := range reconfiguration.Uses(&own.Cluster) {
		if u.Flag == "" || r.brings(u.Path) || !reconfiguration.MustExist(u.Flag) || r.exists(u.Path) {
			continue
		}
		fix := "bring it to all control planes: --file " + u.Path + "=FILE"
		if r.options.Node {
			fix = "bring it to all control planes, on one that has it: ./install reconfigure --file " + u.Path + "=" + u.Path
		}
		list = append(list, preflight.Problem{Name: "Files", Message: fmt.Sprintf("--%s of %s names %s, which does not exist on this host", u.Flag, u.Component, u.Path), Fix: fix})
	}
	return list
}

// brings reports whether a file is one of these.
func (r *Reconfigure) brings(file string) bool {
	return slices.ContainsFunc(r.files, func(f reconfiguration.File) bool { return f.Path == file })
}

func (r *Reconfigure) exists(file string) bool {
	return filesystem.Exists(r.Existing.Path(file))
}

// isManaged reports whether a file is one of the control plane's own: certificates, kubeconfigs, manifests.
func (r *Reconfigure) isManaged(file string) bool {
	dir := path.Dir(file)
	if dir == config.ManifestsDir || dir == config.KubernetesDir && path.Ext(file) == ".conf" || strings.HasPrefix(file, config.KubeletDir+"/") {
		return true
	}
	name, ok := strings.CutPrefix(file, r.Config.CertificatesDir+"/")
	if !ok {
		return false
	}
	base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".crt"), ".key"), ".pub")
	table, err := pki.Certificates(r.Config)
	return err == nil && base != name && (base == "sa" || slices.ContainsFunc(table, func(t pki.Certificate) bool { return t.Base == base }))
}

// Readers are the components that read files which this run writes, and that restart if they started before.
func (r *Reconfigure) Readers() (names []string) {
	for _, f := range r.writtenFiles() {
		for _, name := range reconfiguration.UsersOf(&r.Config.Cluster, f.Path) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// RestartReader restarts a component if a file that it reads was written. Files that other programs wrote are compared with the time
// at which the component was started.
func (r *Reconfigure) RestartReader(ctx context.Context, name string) (bool, error) {
	if r.Record.IsPending(name) {
		if err := r.Pods.Restart(ctx, name); err != nil {
			return false, err
		}
		r.Changed(true)
		return true, r.Restarted(name)
	}
	var own []string
	if r.Unfinished() { // otherwise, an earlier change left the files
		var err error
		if own, err = r.Record.Kept(r.Host).Paths(); err != nil {
			return false, err
		}
	}
	var files []string
	for _, f := range r.writtenFiles() {
		if slices.Contains(reconfiguration.UsersOf(&r.Config.Cluster, f.Path), name) && r.exists(f.Path) && !slices.Contains(own, f.Path) {
			files = append(files, f.Path)
		}
	}
	return pods.RestartReader(ctx, r.Pods, name, files)
}

// content returns a file of the host as it will be.
func (r *Reconfigure) content(file string) ([]byte, error) {
	if i := slices.IndexFunc(r.files, func(f reconfiguration.File) bool { return f.Path == file }); i >= 0 {
		return r.files[i].Data, nil
	}
	return os.ReadFile(r.Existing.Path(file))
}
