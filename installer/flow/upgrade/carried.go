package upgrade

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
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/render"
)

// carried are the files that the flags of a control plane's components name, and that reconfigurations bring to all control
// planes. The cluster keeps them in a Secret.
type carried struct {
	change *change
	before []reconfiguration.File // as the cluster keeps them
	files  []reconfiguration.File // as it will keep them
}

// read reads the files that the cluster keeps.
func (c *carried) read(ctx context.Context) (err error) {
	if c.before, err = cluster.SharedFiles(ctx, c.change.run.facts.api.Client.API, c.key); err != nil {
		return err
	}
	own := &c.change.config().Cluster
	c.files = reconfiguration.Replace(c.before, c.change.options.Files, func(path string) bool { return len(reconfiguration.UsersOf(own, path)) > 0 })
	return nil
}

// key returns sa.key, which all control planes have.
func (c *carried) key() ([]byte, error) {
	return fs.ReadFile(c.change.run.facts.node.Files(), strings.TrimPrefix(path.Join(c.change.config().CertificatesDir, "sa.key"), "/"))
}

// changed reports whether the cluster keeps other files afterwards.
func (c *carried) changed() bool { return !reconfiguration.EqualFiles(c.before, c.files) }

// written returns the files that this run writes to the host. A file that does not change, that the user does not give, and that was
// edited by hand, stays.
func (c *carried) written() (list []pki.File) {
	all := c.change.options.Node || c.change.options.Restore || c.change.run.record.unfinished()
	for _, f := range c.files {
		same := slices.ContainsFunc(c.before, func(b reconfiguration.File) bool {
			return reconfiguration.EqualFiles([]reconfiguration.File{b}, []reconfiguration.File{f})
		})
		given := slices.ContainsFunc(c.change.options.Files, func(g reconfiguration.File) bool { return g.Path == f.Path })
		if all || !same || given || !c.exists(f.Path) {
			list = append(list, pki.File{Path: f.Path, Data: f.Data, Mode: 0o600})
		}
	}
	return list
}

func (c *carried) desired(context.Context) (desired.List, error) {
	return desired.List{Files: c.written()}, nil
}

// write writes the files. A component that reads them restarts later.
func (c *carried) write(ctx context.Context, l desired.List) error {
	if err := (encryption{c.change}).leave(ctx); err != nil {
		return err
	}
	_, err := c.change.run.record.writeKept(l.Files...)
	return err
}

// secret returns the Secret with the files, if they change.
func (c *carried) secret() (desired.List, error) {
	if !c.changed() {
		return desired.List{}, nil
	}
	key, err := c.key()
	if err != nil {
		return desired.List{}, fmt.Errorf("reading sa.key: %w", err)
	}
	data, err := reconfiguration.Seal(key, c.files)
	return desired.List{Objects: render.UploadFiles(data)}, err
}

// check returns what is wrong with the files that the user gives, and which files are missing.
func (c *carried) check() (list []preflight.Problem) {
	own := c.change.config()
	for _, f := range c.change.options.Files {
		switch {
		case len(reconfiguration.UsersOf(&own.Cluster, f.Path)) == 0:
			list = append(list, preflight.Problem{Name: "Files", Message: fmt.Sprintf("--file %s: no component of the control plane mounts it", f.Path),
				Fix: "mount its directory: extraVolumes of apiServer, controllerManager or scheduler in ClusterConfiguration; or remove --file"})
		case c.isManaged(f.Path):
			list = append(list, preflight.Problem{Name: "Files", Message: fmt.Sprintf("--file %s: Airlift and the components manage this file", f.Path),
				Fix: "choose another path"})
		}
	}
	for _, u := range reconfiguration.Uses(&own.Cluster) {
		if u.Flag == "" || c.brings(u.Path) || !reconfiguration.MustExist(u.Flag) || c.exists(u.Path) {
			continue
		}
		fix := "bring it to all control planes: --file " + u.Path + "=FILE"
		if c.change.options.Node {
			fix = "bring it to all control planes, on one that has it: ./install reconfigure --file " + u.Path + "=" + u.Path
		}
		list = append(list, preflight.Problem{Name: "Files", Message: fmt.Sprintf("--%s of %s names %s, which does not exist on this host", u.Flag, u.Component, u.Path), Fix: fix})
	}
	return list
}

// brings reports whether a file is one of these.
func (c *carried) brings(file string) bool {
	return slices.ContainsFunc(c.files, func(f reconfiguration.File) bool { return f.Path == file })
}

func (c *carried) exists(file string) bool {
	return filesystem.Exists(c.change.run.facts.node.Existing.Path(file))
}

// isManaged reports whether a file is one of the control plane's own: certificates, kubeconfigs, manifests.
func (c *carried) isManaged(file string) bool {
	dir := path.Dir(file)
	if dir == config.ManifestsDir || dir == config.KubernetesDir && path.Ext(file) == ".conf" || strings.HasPrefix(file, config.KubeletDir+"/") {
		return true
	}
	name, ok := strings.CutPrefix(file, c.change.config().CertificatesDir+"/")
	if !ok {
		return false
	}
	base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".crt"), ".key"), ".pub")
	table, err := pki.Certificates(c.change.config())
	return err == nil && base != name && (base == "sa" || slices.ContainsFunc(table, func(t pki.Certificate) bool { return t.Base == base }))
}

// readers are the components that read files which this run writes, and that restart if they started before.
func (c *carried) readers() (names []string) {
	for _, f := range c.written() {
		for _, name := range reconfiguration.UsersOf(&c.change.config().Cluster, f.Path) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// restartReader restarts a component if a file that it reads was written. Files that other programs wrote are compared with the time
// at which the component was started.
func (c *carried) restartReader(ctx context.Context, s *pods.StaticPods, name string) (bool, error) {
	r := c.change.run.record
	if r.state.IsPending(name) {
		if err := s.Restart(ctx, name); err != nil {
			return false, err
		}
		s.Changed(true)
		return true, r.restarted(name)
	}
	var own []string
	if r.unfinished() { // otherwise, an earlier change left the files
		var err error
		if own, err = r.former().Paths(); err != nil {
			return false, err
		}
	}
	var files []string
	for _, f := range c.written() {
		if slices.Contains(reconfiguration.UsersOf(&c.change.config().Cluster, f.Path), name) && c.exists(f.Path) && !slices.Contains(own, f.Path) {
			files = append(files, f.Path)
		}
	}
	return pods.RestartReader(ctx, s, name, files)
}

// content returns a file of the host as it will be.
func (c *carried) content(file string) ([]byte, error) {
	if i := slices.IndexFunc(c.files, func(f reconfiguration.File) bool { return f.Path == file }); i >= 0 {
		return c.files[i].Data, nil
	}
	return os.ReadFile(c.change.run.facts.node.Existing.Path(file))
}
