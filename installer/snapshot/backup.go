package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"filippo.io/age"

	"airlift/installer/backup"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// A Backup saves this cluster's etcd, its shared keys and its configuration to one file.
type Backup struct {
	*node.Machine
	Recipients []age.Recipient // who can decrypt it; none means that it is not encrypted
	Kubeconfig string          // of an administrator
	// WithoutQuorum also saves the data of a member without a leader, whose last changes may be missing.
	WithoutQuorum bool
	Summary       string // of what was saved, for people
	// Open opens the host again, and locks it: a backup is sent without the lock.
	Open func() (h *host.Host, unlock func(), err error)
}

// New returns a Backup of a host's cluster.
func New(h *host.Host, c *workflow.Console) *Backup {
	return &Backup{Machine: node.NewMachine(h, c), Kubeconfig: node.AdminConf}
}

// Save writes a verified backup to a file that the user named. It replaces an existing file
// only with force.
func (b *Backup) Save(ctx context.Context, file string, force bool) error {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return fault.New(fault.Usage, "%s is a directory", file).Hint("name a file in it, such as " + fault.Word(path.Join(file, "cluster.tar")) + "; or write backups to it at intervals: --every 6h")
	}
	if _, err := os.Lstat(file); err == nil && !force {
		return backupExists(file)
	}
	_, err := b.saveAs(ctx, file, func(backup.Manifest) string { return file }, force)
	return err
}

func backupExists(file string) error {
	return fault.New(fault.Usage, "%s exists", file).Hint("choose another name, or replace it with --force")
}

// saveAs writes a backup to a path, or to a file in it that name chooses, and records the result.
func (b *Backup) saveAs(ctx context.Context, path string, name func(backup.Manifest) string, replace bool) (node.BackupRecord, error) {
	r := node.BackupRecord{Time: time.Now().UTC().Truncate(time.Second), Path: path}
	err := b.checkPlace(path)
	if err == nil {
		err = b.SaveNamed(ctx, name, replace, &r)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r, errors.Join(err, b.record(r))
}

// checkPlace refuses a path at which reset would remove the backup.
func (b *Backup) checkPlace(path string) error {
	e, err := node.OwnEtcd(b.Host)
	if err != nil {
		return err
	}
	dir, err := uninstall.RemovedByReset(b.Host, path, e.DataDir, e.Certificates)
	if err == nil && dir != "" {
		err = fault.New(fault.Usage, "a backup at %s would be lost: reset removes what is in %s", path, dir).Hint("choose another directory, such as /root/backups, or better one on another drive")
	}
	return err
}

// record stores the result, except on a host that Airlift did not install.
func (b *Backup) record(r node.BackupRecord) error {
	if !b.Host.Records().Used() {
		return nil
	}
	return node.WriteRecord(b.Host, node.BackupRecordPath, r)
}

// SaveNamed writes a backup, and completes its record.
func (b *Backup) SaveNamed(ctx context.Context, name func(backup.Manifest) string, replace bool, r *node.BackupRecord) error {
	return b.gather(ctx, r, func(m backup.Manifest, snapshot string, files []backup.File) (err error) {
		r.Path = name(m)
		r.Size, err = b.write(ctx, r.Path, replace, m, snapshot, files)
		return err
	})
}

// Stream writes a backup to another host. This one keeps nothing of it, so there is no record. It unlocks the host before it sends: that may
// take long.
func (b *Backup) Stream(ctx context.Context, to io.Writer, unlock func()) error {
	return b.gather(ctx, &node.BackupRecord{}, func(m backup.Manifest, snapshot string, files []backup.File) error {
		unlock()
		return backup.Write(backup.Until(ctx, to), m, snapshot, files, b.Recipients...)
	})
}

// gather gathers what a backup has, and completes its record after write.
func (b *Backup) gather(ctx context.Context, r *node.BackupRecord, write func(m backup.Manifest, snapshot string, files []backup.File) error) error {
	c, e, err := node.LocalEtcdClient(ctx, b.Machine)
	if err != nil {
		return err
	}
	defer c.Close()
	m, current, err := b.describe(ctx, c, e)
	if err != nil {
		return err
	}
	// Not next to the backup: the snapshot is not encrypted.
	snapshot, err := b.Host.CreateScratch()
	if err != nil {
		return fmt.Errorf("writing to %s: %w", ledger.StateDir, err)
	}
	defer snapshot.Close()
	if err = c.Snapshot(ctx, snapshot); err == nil {
		m.Snapshot, err = etcd.VerifySnapshot(snapshot.Name())
	}
	if err != nil {
		return space.Explain(ledger.StateDir, err)
	}
	var stored storedCluster
	if current {
		stored, err = b.fromCluster(ctx)
	} else {
		stored, err = b.fromSnapshot(snapshot.Name())
	}
	if err != nil {
		return err
	}
	files, err := b.collect(&m, stored)
	if err != nil {
		return err
	}
	if err := write(m, snapshot.Name(), files); err != nil {
		return err
	}
	r.Snapshot, r.CACertHash = &m.Snapshot, m.CACertHash
	b.Summary = fmt.Sprintf("%s: %d keys at revision %d, %d files, hash %08x, verified\nto restore only a backup of this cluster: --ca-cert-hash %s",
		r.Path, m.Snapshot.Keys, m.Snapshot.Revision, len(files), m.Snapshot.Hash, m.CACertHash)
	return nil
}

// write writes the archive, and returns its size.
func (b *Backup) write(ctx context.Context, file string, replace bool, m backup.Manifest, snapshot string, files []backup.File) (size int64, err error) {
	failed := func(err error) error {
		return fmt.Errorf("writing %s: %w", file, space.Explain(filepath.Dir(file), err))
	}
	out, err := filesystem.CreateOutput(file)
	if err != nil {
		return 0, failed(err)
	}
	defer out.Discard()
	if exposed, err := filesystem.Exposed(out.Name()); err != nil {
		return 0, failed(err)
	} else if exposed && len(b.Recipients) == 0 {
		b.Console.Warn("other users of this host can read %s, which has all secrets of the cluster: its file system has no modes. Encrypt the backup (--recipient), or mount the file system with umask=077", file)
	}
	if err := backup.Write(backup.Until(ctx, out), m, snapshot, files, b.Recipients...); err != nil {
		return 0, failed(err)
	}
	if size, err = out.Size(); err != nil {
		return 0, failed(err)
	}
	commit := out.CommitNew
	if replace {
		commit = out.Commit
	}
	switch err := commit(); {
	case errors.Is(err, fs.ErrExist):
		return 0, backupExists(file)
	case err != nil:
		return 0, failed(err)
	}
	return size, nil
}
