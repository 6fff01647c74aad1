package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"filippo.io/age"

	"airlift/bundle/space"
	"airlift/fault"
	"airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/pki"
)

// A BackupFile is a backup that was read to its end and found complete.
type BackupFile struct {
	*backup.Backup
	Path       string
	identities []age.Identity
}

// OpenBackup reads and checks a backup. It changes nothing.
func OpenBackup(ctx context.Context, path string, identities []age.Identity) (*BackupFile, error) {
	f := &BackupFile{Path: path, identities: identities}
	var err error
	f.Backup, err = f.read(ctx, cancelled{ctx, discard{}})
	return f, err
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// read reads the file and writes its snapshot to w. It refuses another backup than the first time.
func (f *BackupFile) read(ctx context.Context, w cancelled) (*backup.Backup, error) {
	in, err := os.Open(f.Path)
	if err != nil {
		return nil, fault.New(fault.Usage, "name a file that './install etcd snapshot' wrote", "reading the backup: %w", err)
	}
	defer in.Close()
	b, err := backup.Read(in, w, f.identities...)
	if err != nil {
		return nil, backupFault(f.Path, err)
	}
	if f.Backup != nil && !reflect.DeepEqual(b.Manifest, f.Manifest) { // with the sha256 of everything else
		return nil, fault.New(fault.Bundle, "copy it to a disk that only root can write to, and run the command again", "the backup %s was changed while this command was running", f.Path)
	}
	return b, nil
}

// backupFault adds a hint to an error about a backup.
func backupFault(path string, err error) error {
	code, hint := fault.Bundle, "copy the file again, or use another backup"
	switch {
	case errors.Is(err, backup.ErrEncrypted):
		code, hint = fault.Usage, "give the key with --identity FILE, or --passphrase"
	case errors.Is(err, backup.ErrOtherKey):
		code, hint = fault.Usage, "give the key of one of its recipients with --identity FILE, or the correct passphrase"
	case errors.Is(err, backup.ErrNotBackup), errors.Is(err, syscall.EISDIR):
		code, hint = fault.Usage, "name a file that './install etcd snapshot' wrote"
	}
	return fault.New(code, hint, "reading the backup %s: %w", path, err)
}

// Config returns the configuration of init that creates the cluster of the backup on another
// host: the cluster's, without what belongs to the node that wrote it.
func (f *BackupFile) Config() (*config.Config, []string, error) {
	c, warnings, err := config.ParseInit(f.Path+": "+backup.ConfigName, f.Files[backup.ConfigName])
	if err != nil {
		return nil, nil, err
	}
	if c.Etcd.External != nil {
		return nil, nil, fault.New(fault.Usage, "restore it with the tools of that etcd", "the cluster of this backup uses an external etcd")
	}
	c.KubernetesVersion, c.CNI = "", f.Manifest.CNI
	port := c.LocalAPIEndpoint.BindPort
	c.LocalAPIEndpoint, c.NodeRegistration, c.BootstrapTokens = config.APIEndpoint{BindPort: port}, config.NodeRegistration{}, nil
	return c, warnings, nil
}

// CheckVersion refuses a backup of another minor version of Kubernetes.
func (f *BackupFile) CheckVersion(b *Bundle) error {
	is, want := config.Cluster{KubernetesVersion: b.KubernetesVersion()}, config.Cluster{KubernetesVersion: f.Manifest.KubernetesVersion}
	if is.Minor() == want.Minor() {
		return nil
	}
	return fault.New(fault.Preflight, fmt.Sprintf("use a file with Kubernetes v1.%d, and upgrade afterwards", want.Minor()),
		"the backup %s is of Kubernetes %s, and this file has %s: a backup can be restored only with the same minor version", f.Path, want.KubernetesVersion, is.KubernetesVersion)
}

// A Restore is an init whose keys and etcd data come from a backup.
type Restore struct {
	*Init
	backup *BackupFile
}

// NewRestore returns a Restore that runs the plan on a host.
func NewRestore(p *Plan, o InitOptions, f *BackupFile, h *host.Host, c *Console) *Restore {
	r := &Restore{Init: NewInit(p, o, h, c), backup: f}
	r.checkEarlier, r.restored, r.onlyThisNode = r.checkFresh, &f.Manifest.Snapshot, true
	return r
}

// Steps returns the steps of init, with those of the restore between them.
func (r *Restore) Steps() []Step {
	steps := r.Init.Steps()
	insert := func(after string, s Step) {
		i := slices.IndexFunc(steps, func(s Step) bool { return s.Name == after })
		steps = slices.Insert(steps, i+1, s)
	}
	insert("runtime", Step{Name: "restore-etcd", Doc: "restore etcd's data from the backup", Run: r.restoreEtcd, Needed: true})
	insert("runtime", Step{Name: "restore-files", Doc: "restore the files that the control plane's flags refer to", Run: r.restoreFiles, Needed: true})
	insert("runtime", Step{Name: "restore-certs", Doc: "restore the cluster's CAs and keys from the backup", Run: r.restoreCerts, Needed: true})
	insert("wait-control-plane", Step{Name: "compare-cluster", Doc: "compare the running cluster with the backup", Run: r.withClient(r.compareCluster), Needed: true})
	insert("kubelet-finalize", Step{Name: "remove-old-nodes", Doc: "remove the control planes of the lost cluster", Run: r.withAPI(r.removeOldNodes)})
	insert("addon", Step{Name: "restart-daemons", Doc: "restart this node's system pods with the new addresses", Run: r.withAPI(r.restartDaemons)})
	return append(steps, Step{Name: "finish", Doc: "complete the restore", Run: r.finish, Needed: true})
}

// Run runs all steps.
func (r *Restore) Run(ctx context.Context) error {
	return Run(ctx, r.console, r.Steps(), r.plan.config.SkipPhases)
}

// checkFresh refuses a host that has a node already, unless this restore was interrupted.
func (r *Restore) checkFresh(context.Context) error {
	lost, err := r.existing.RemovedByReset(r.backup.Path, r.config.Etcd.Local.DataDir, r.config.CertificatesDir)
	if err != nil {
		return err
	}
	if lost != "" {
		return fault.New(fault.Preflight, "mv "+fault.Word(r.backup.Path)+" /root/", "the backup %s is in %s, where reset would remove it", r.backup.Path, lost)
	}
	earlier, err := readRestoreMark(r.existing)
	if err != nil {
		return err
	}
	if earlier != nil {
		return r.checkMark(earlier)
	}
	ca := path.Join(r.config.CertificatesDir, "ca.crt")
	if data, err := os.ReadFile(r.existing.Path(ca)); err == nil {
		if hash, err := caHash(data); err != nil || hash != r.backup.Manifest.CACertHash {
			return fault.New(fault.Preflight, resetFirst, "the backup is of another cluster: %s on this host is not its CA (%s)", ca, r.backup.Manifest.CACertHash)
		}
	}
	for _, file := range []string{adminConf, kubeletConf, bootstrapConf, etcdManifest, apiServerManifest, path.Join(r.config.Etcd.Local.DataDir, "member")} {
		if fileExists(r.existing, file) {
			return fault.New(fault.Preflight, resetFirst, "this host is part of a cluster: %s exists. A restore needs a host that is not part of a cluster", file)
		}
	}
	return nil
}

// restoreCerts writes the shared keys and certificates.
func (r *Restore) restoreCerts(context.Context) error {
	if err := r.ensureMark(); err != nil {
		return err
	}
	var files []pki.File
	rotating := false
	for _, e := range r.backup.Manifest.Entries {
		name, ok := strings.CutPrefix(e.Name, backup.PKIDir)
		if !ok || !slices.Contains(sharedNames, name) {
			continue
		}
		f := pki.File{Path: path.Join(r.config.CertificatesDir, name), Data: r.backup.Files[e.Name], Mode: 0o644}
		switch path.Ext(name) {
		case ".key":
			f.Mode = 0o600
		case ".crt":
			// The controller manager does not start with a file of two certificates.
			only, rotated := pki.SigningCA(f.Data)
			f.Data, rotating = only, rotating || rotated
		}
		files = append(files, f)
	}
	if rotating {
		r.console.Warn("the backup was saved during a rotation of the CAs: only the CAs that signed on that control plane are restored. If a worker stays NotReady, reset it and join it again")
	}
	return r.write(files...)
}

// restoreEtcd creates etcd's data directory. Its part "member" appears complete, or not at all.
func (r *Restore) restoreEtcd(ctx context.Context) error {
	dir := r.config.Etcd.Local.DataDir
	work := path.Join(dir, ".airlift-restore")
	if r.exists(path.Join(dir, "member")) {
		r.console.Note("an earlier run has restored etcd's data")
		return r.host.RemoveTree(work) // with the snapshot, if that run was killed before it removed it
	}
	if err := r.controlPlane.claimEtcd(); err != nil {
		return err
	}
	if err := r.host.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	mark, err := r.ownMark()
	if err != nil {
		return err
	}
	if err := r.host.RemoveTree(work); err != nil {
		return err
	}
	if err := host.OutputDir(r.host.Path(path.Dir(etcd.DatabasePath(work))), 0o700); err != nil {
		return err
	}
	if mark.ClusterUID, err = r.writeSnapshot(ctx, work); err != nil {
		return space.Explain(dir, err)
	}
	if err := writeRecord(r.host, restoreMarkPath, mark); err != nil {
		return err
	}
	if err := etcd.Restore(r.host.Path(work), mark.Node, mark.Peer, mark.Token); err != nil {
		return err
	}
	if err := r.host.Rename(path.Join(work, "member"), path.Join(dir, "member")); err != nil {
		return err
	}
	r.changed(true)
	s := r.backup.Manifest.Snapshot
	r.console.Note("%d keys at revision %d, saved on %s", s.Keys, s.Revision, r.backup.Manifest.Created.Format("2006-01-02 15:04 MST"))
	return r.host.RemoveTree(work)
}

// writeSnapshot writes the snapshot in the backup, verifies it, and writes its database. uid is the UID
// of the cluster in it.
func (r *Restore) writeSnapshot(ctx context.Context, work string) (uid string, err error) {
	snapshot, err := host.CreateOutput(r.host.Path(path.Join(work, "snapshot.db")))
	if err != nil {
		return "", err
	}
	defer snapshot.Discard()
	if _, err := r.backup.read(ctx, cancelled{ctx, snapshot}); err != nil {
		return "", err
	}
	is, err := etcd.VerifySnapshot(snapshot.Name())
	if err != nil {
		return "", err
	}
	if want := r.backup.Manifest.Snapshot; is != want {
		return "", fault.New(fault.Bundle, "use another backup", "the snapshot in the backup is %+v, want %+v", is, want)
	}
	prefix, _ := config.LastArg(r.config.APIServer.ExtraArgs, "etcd-prefix")
	stored := cluster.Snapshot{Prefix: cmp.Or(prefix, "/registry")}
	if stored.Values, err = etcd.Values(snapshot.Name(), stored.UIDKey()); err != nil {
		return "", err
	}
	db, err := host.CreateOutput(r.host.Path(etcd.DatabasePath(work)))
	if err != nil {
		return "", err
	}
	defer db.Discard()
	if err := etcd.WriteDatabase(db, snapshot.Name()); err != nil {
		return "", err
	}
	return stored.UID(), db.Commit()
}

// removeOldNodes removes the Nodes of the control planes that the backup knows. Workers may
// still run: they are listed.
func (r *Restore) removeOldNodes(ctx context.Context) error {
	removed, workers, err := r.client.RemoveOtherControlPlanes(ctx, r.config.NodeRegistration.Name)
	for _, name := range removed {
		r.console.Note("removed node %s", name)
		r.changed(true)
	}
	for _, name := range workers {
		r.console.Note("kept worker %s; if that host is lost: kubectl delete node %s", name, name)
	}
	if err != nil {
		return err
	}
	if err := r.client.RemoveTurn(ctx); err != nil {
		return err
	}
	return r.endRotation(ctx)
}

// endRotation removes the state of a rotation of the CAs that was in progress: the pairs that it needs
// are not in a backup.
func (r *Restore) endRotation(ctx context.Context) error {
	state, err := r.client.Rotation(ctx)
	if err != nil || state == nil {
		return err
	}
	r.console.Note("ended the rotation of the CAs, which was at the stage %q; to begin another one: ./install certs rotate-ca distribute", state.Stage)
	r.changed(true)
	return r.client.RemoveRotation(ctx)
}

// restartDaemons restarts kube-proxy and flannel on this node. Their DaemonSets are in the
// backup, so they started before init has replaced the address of the API server.
func (r *Restore) restartDaemons(ctx context.Context) error {
	restarted, err := r.client.RestartDaemonPods(ctx, r.config.NodeRegistration.Name, "kube-system", "kube-flannel")
	for _, name := range restarted {
		r.console.Debug(1, "restarted %s", name)
	}
	return err
}

// finish removes the mark: from now on, the host is a node as after init.
func (r *Restore) finish(context.Context) error { return r.host.Remove(restoreMarkPath) }
