package initcluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"airlift/installer/backup"
	"airlift/installer/backup/target"
	"airlift/installer/cluster"
	"airlift/installer/cluster/lease"
	"airlift/installer/cluster/rotation"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/reconfiguration"
	"airlift/installer/snapshot"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// A Restore is an init whose keys and etcd data come from a backup.
type Restore struct {
	*node.Machine
	node   *phases.Node
	api    *phases.API
	init   *Init
	backup *snapshot.File
}

// NewRestore returns a Restore that runs the plan on a host.
func NewRestore(p *phases.Plan, o phases.InitOptions, f *snapshot.File, h *host.Host, c *workflow.Console) *Restore {
	i := New(p, o, h, c)
	r := &Restore{Machine: i.Machine, node: i.node, api: i.api, init: i, backup: f}
	i.node.CheckEarlier, i.node.Restored, i.system.onlyThisNode = r.checkFresh, &f.Manifest.Snapshot, true
	return r
}

// Steps returns the steps of init, with the steps of the restore between them.
func (r *Restore) Steps() []workflow.Step {
	steps := r.init.Steps()
	insert := func(after string, s workflow.Step) {
		i := slices.IndexFunc(steps, func(s workflow.Step) bool { return s.Name == after })
		steps = slices.Insert(steps, i+1, s)
	}
	insert("runtime", workflow.Step{Name: "restore-etcd", Doc: "restore etcd's data from the backup", Run: r.restoreEtcd, Needed: true})
	insert("runtime", workflow.Step{Name: "restore-files", Doc: "restore the files that the control plane's flags refer to", Run: r.restoreFiles, Needed: true})
	insert("runtime", workflow.Step{Name: "restore-certs", Doc: "restore the cluster's CAs and keys from the backup", Run: r.restoreCerts, Needed: true})
	insert("wait-control-plane", workflow.Step{Name: "compare-cluster", Doc: "compare the running cluster with the backup", Prepare: r.init.access.client, Run: r.compareCluster, Needed: true})
	insert("kubelet-finalize", workflow.Step{Name: "remove-old-nodes", Doc: "remove the control planes of the lost cluster", Prepare: r.init.access.admin, Run: r.removeOldNodes})
	insert("addon", workflow.Step{Name: "restart-daemons", Doc: "restart this node's system pods with the new addresses", Prepare: r.init.access.admin, Run: r.restartDaemons})
	return append(steps, workflow.Step{Name: "finish", Doc: "complete the restore", Run: r.finish, Needed: true})
}

// Run runs all steps.
func (r *Restore) Run(ctx context.Context) error {
	return workflow.Run(ctx, r.Console, r.Steps(), r.node.Plan.Config.SkipPhases)
}

// Close stops everything that runs in the background.
func (r *Restore) Close() { r.init.Close() }

// checkFresh refuses a host that has a node already, unless this restore was interrupted.
func (r *Restore) checkFresh(context.Context) error {
	lost := ""
	if !target.IsURL(r.backup.Path) {
		var err error
		if lost, err = uninstall.RemovedByReset(r.Existing, r.backup.Path, r.node.Config.Etcd.Local.DataDir, r.node.Config.CertificatesDir); err != nil {
			return err
		}
	}
	if lost != "" {
		return fault.New(fault.Preflight, "the backup %s is in %s, where reset would remove it", r.backup.Path, lost).Hint("mv " + fault.Word(r.backup.Path) + " /root/")
	}
	earlier, err := node.ReadRestoreMark(r.Existing)
	if err != nil {
		return err
	}
	if earlier != nil {
		return r.checkMark(earlier)
	}
	ca := path.Join(r.node.Config.CertificatesDir, "ca.crt")
	if data, err := os.ReadFile(r.Existing.Path(ca)); err == nil {
		if hash, err := node.CAHash(data); err != nil || hash != r.backup.Manifest.CACertHash {
			return fault.New(fault.Preflight, "the backup is of another cluster: %s on this host is not its CA (%s)", ca, r.backup.Manifest.CACertHash).Hint(node.ResetFirst)
		}
	}
	for _, file := range []string{node.AdminConf, node.KubeletConf, node.BootstrapConf, node.EtcdManifest, node.APIServerManifest, path.Join(r.node.Config.Etcd.Local.DataDir, "member")} {
		if node.FileExists(r.Existing, file) {
			return fault.New(fault.Preflight, "this host is part of a cluster: %s exists. A restore needs a host that is not part of a cluster", file).Hint(node.ResetFirst)
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
		if !ok || !slices.Contains(snapshot.SharedNames, name) {
			continue
		}
		f := pki.File{Path: path.Join(r.node.Config.CertificatesDir, name), Data: r.backup.Files[e.Name], Mode: 0o644}
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
		r.Console.Warn("the backup was saved during a rotation of the CAs: only the CAs that signed on that control plane are restored. If a worker stays NotReady, reset it and join it again")
	}
	return r.Write(files...)
}

// restoreEtcd creates etcd's data directory. Its part "member" appears complete, or not at all.
func (r *Restore) restoreEtcd(ctx context.Context) error {
	dir := r.node.Config.Etcd.Local.DataDir
	work := path.Join(dir, ".airlift-restore")
	if r.Exists(path.Join(dir, "member")) {
		r.Console.Note("an earlier run has restored etcd's data")
		return r.Host.RemoveTree(work) // with the snapshot, if that run was killed before it removed it
	}
	if err := r.node.Apply(ctx, desired.List{Claims: r.node.EtcdClaim()}); err != nil {
		return err
	}
	if err := r.Host.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	mark, err := r.ownMark()
	if err != nil {
		return err
	}
	if err := r.Host.RemoveTree(work); err != nil {
		return err
	}
	if err := filesystem.OutputDir(r.Host.Path(path.Dir(etcd.DatabasePath(work))), 0o700); err != nil {
		return err
	}
	if mark.ClusterUID, err = r.writeSnapshot(ctx, work); err != nil {
		return space.Explain(dir, err)
	}
	if err := node.WriteRecord(r.Host, node.RestoreMarkPath, mark); err != nil {
		return err
	}
	if err := etcd.Restore(r.Host.Path(work), mark.Node, mark.Peer, mark.Token); err != nil {
		return err
	}
	if err := r.Host.Rename(path.Join(work, "member"), path.Join(dir, "member")); err != nil {
		return err
	}
	r.Changed(true)
	s := r.backup.Manifest.Snapshot
	r.Console.Note("%d keys at revision %d, saved on %s", s.Keys, s.Revision, r.backup.Manifest.Created.Format("2006-01-02 15:04 MST"))
	return r.Host.RemoveTree(work)
}

// writeSnapshot writes the snapshot in the backup, verifies it, and writes its database. uid is the UID
// of the cluster in it.
func (r *Restore) writeSnapshot(ctx context.Context, work string) (uid string, err error) {
	saved, err := filesystem.CreateOutput(r.Host.Path(path.Join(work, "snapshot.db")))
	if err != nil {
		return "", err
	}
	defer saved.Discard()
	if err := r.backup.CopySnapshot(ctx, saved); err != nil {
		return "", err
	}
	is, err := etcd.VerifySnapshot(saved.Name())
	if err != nil {
		return "", err
	}
	if want := r.backup.Manifest.Snapshot; is != want {
		return "", fault.New(fault.Bundle, "the snapshot in the backup is %+v, want %+v", is, want).Hint("use another backup")
	}
	version, err := etcd.DataVersion(saved.Name())
	if err != nil {
		return "", err
	}
	if err := node.CheckEtcd(r.node.Config.Images[node.EtcdPod], version, r.node.Config.KubernetesVersion); err != nil {
		return "", fault.Wrap(err, fault.Preflight, fault.Hint(err)+"; then here: ./install reset --force, and restore with the new file")
	}
	prefix, _ := config.LastArg(r.node.Config.APIServer.ExtraArgs, "etcd-prefix")
	stored := cluster.Snapshot{Prefix: cmp.Or(prefix, "/registry")}
	if stored.Values, err = etcd.Values(saved.Name(), stored.UIDKey()); err != nil {
		return "", err
	}
	db, err := filesystem.CreateOutput(r.Host.Path(etcd.DatabasePath(work)))
	if err != nil {
		return "", err
	}
	defer db.Discard()
	if err := etcd.WriteDatabase(db, saved.Name()); err != nil {
		return "", err
	}
	return stored.UID(), db.Commit()
}

// removeOldNodes removes the Nodes of the control planes that the backup knows. Workers may
// still run: they are listed.
func (r *Restore) removeOldNodes(ctx context.Context) error {
	removed, workers, err := r.api.Client.NodeObjects().RemoveOtherControlPlanes(ctx, r.node.Config.NodeRegistration.Name)
	for _, name := range removed {
		r.Console.Note("removed node %s", name)
		r.Changed(true)
	}
	for _, name := range workers {
		r.Console.Note("kept worker %s; if that host is lost: ./install node remove %s", name, name)
	}
	if err != nil {
		return err
	}
	if err := lease.Remove(ctx, r.api.Client.API); err != nil {
		return err
	}
	return r.endRotation(ctx)
}

// endRotation removes the state of a rotation of the CAs that was in progress: the pairs that it needs
// are not in a backup.
func (r *Restore) endRotation(ctx context.Context) error {
	state, err := rotation.Read(ctx, r.api.Client.API)
	if err != nil || state == nil {
		return err
	}
	r.Console.Note("ended the rotation of the CAs, which was at the stage %q; to begin another one: ./install certs rotate-ca distribute", state.Stage)
	r.Changed(true)
	return rotation.Remove(ctx, r.api.Client)
}

// restartDaemons restarts kube-proxy and flannel on this node. Their DaemonSets are in the
// backup, so they started before init has replaced the address of the API server.
func (r *Restore) restartDaemons(ctx context.Context) error {
	restarted, err := workloads.RestartDaemonPods(ctx, r.api.Client.API, r.node.Config.NodeRegistration.Name, "kube-system", "kube-flannel")
	for _, name := range restarted {
		r.Console.Debug(1, "restarted %s", name)
	}
	return err
}

// finish removes the mark: from now on, the host is a node as after init.
func (r *Restore) finish(context.Context) error { return r.Host.Remove(node.RestoreMarkPath) }

// restoreFiles writes the files of the control plane's components. A file that exists stays.
func (r *Restore) restoreFiles(context.Context) error {
	for _, file := range reconfiguration.ComponentFiles(&r.node.Config.Cluster) {
		data, ok := r.backup.Files[backup.FilesDir+strings.TrimPrefix(file, "/")]
		if !ok {
			continue
		}
		switch is, err := os.ReadFile(r.Existing.Path(file)); {
		case err == nil && !bytes.Equal(is, data):
			r.Console.Warn("%s exists and differs from the file in the backup: it was not changed", file)
			continue
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if _, err := r.Host.WriteFile(file, data, 0o600); err != nil {
			return err
		}
		r.Changed(true)
	}
	return nil
}
