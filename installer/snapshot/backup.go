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
	"strings"
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
	// Open opens the host again, and locks it: a backup is written to its place without the lock, because a drive or a server may hang.
	Open func() (h *host.Host, unlock func(), err error)
}

// New returns a Backup of a host's cluster. Without another Open, the caller has locked the host.
func New(h *host.Host, c *workflow.Console) *Backup {
	return &Backup{Machine: node.NewMachine(h, c), Kubeconfig: node.AdminConf, Open: func() (*host.Host, func(), error) { return h, func() {}, nil }}
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
	_, err := b.saveAs(ctx, file, func(backup.Manifest) string { return file }, force, false, nothing)
	return err
}

func backupExists(file string) error {
	return fault.New(fault.Usage, "%s exists", file).Hint("choose another name, or replace it with --force")
}

// errOtherCluster is why the result of a backup is not recorded.
var errOtherCluster = errors.New("while the backup was written, this host was reset or its CAs were replaced")

// saveAs writes a backup to a path, or to a file in it that name chooses, and records the result. The host is locked only while etcd is saved
// and the result is recorded. If it has succeeded, then is called with the lock.
func (b *Backup) saveAs(ctx context.Context, path string, name func(backup.Manifest) string, replace, timer bool, then func() error) (node.BackupRecord, error) {
	r := node.BackupRecord{Time: time.Now().UTC().Truncate(time.Second), Path: path}
	cluster, _ := b.clusterPrefix()
	refused, wait := error(nil), false
	err := b.checkPlace(path)
	if err == nil {
		var g *gathered
		refused = b.locked(ctx, false, func() error {
			g, err = b.gather(ctx)
			return nil
		})
		if wait = refused == nil; wait && err == nil {
			defer g.close()
			err = b.writeNamed(ctx, g, name, replace, &r)
		}
	}
	if refused != nil {
		return r, refused
	}
	return r, errors.Join(err, b.locked(ctx, wait, func() error {
		if now, _ := b.clusterPrefix(); now != cluster {
			return fault.Wrap(errOtherCluster, fault.Failure, "what was written stays there: ls -l "+fault.Word(r.Path))
		}
		if rerr := b.record(r, path, timer, err); err != nil || rerr != nil {
			return rerr
		}
		return then()
	}))
}

// lockPatience limits the wait for another installer, after a backup was written or sent.
const lockPatience = time.Hour

// locked calls do with the lock of the host, and with the host as it is now. With wait, it waits for another installer.
func (b *Backup) locked(ctx context.Context, wait bool, do func() error) error {
	for began := time.Now(); ; {
		h, unlock, err := b.Open()
		if err == nil {
			defer unlock()
			b.Machine = node.NewMachine(h, b.Console)
			return do()
		}
		if !wait || !errors.Is(err, host.ErrLocked) || time.Since(began) > lockPatience {
			return err
		}
		if time.Since(began) < time.Second {
			fmt.Fprintf(b.Console.Out, "another installer is running on this host: waiting at most %s to record the backup\n", lockPatience)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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

// record stores the result, except on a host that Airlift did not install. With timer, it is of a run of the timer for a place; otherwise the
// last run of the timer is kept.
func (b *Backup) record(r node.BackupRecord, place string, timer bool, failed error) error {
	if !b.Host.Records().Used() {
		return nil
	}
	if failed != nil {
		r.Error, _, _ = strings.Cut(failed.Error(), "\n")
	}
	if before, err := node.LastBackup(b.Host); err == nil && before != nil { // a damaged one is replaced
		r.Timer = before.Timer
	}
	if timer {
		schedule, err := node.ReadBackupSchedule(b.Host)
		if err != nil {
			return err
		}
		switch {
		case failed == nil:
			r.Timer = &node.TimerRun{Saved: &r.Time}
		case schedule.Place == place: // otherwise, it is the first backup of a timer that is not installed then
			run := node.TimerRun{Error: r.Error}
			if r.Timer != nil {
				run.Saved = r.Timer.Saved
			}
			r.Timer = &run
		}
	}
	return node.WriteRecord(b.Host, node.BackupRecordPath, r)
}

// SaveNamed writes a backup, and completes its record.
func (b *Backup) SaveNamed(ctx context.Context, name func(backup.Manifest) string, replace bool, r *node.BackupRecord) error {
	g, err := b.gather(ctx)
	if err != nil {
		return err
	}
	defer g.close()
	return b.writeNamed(ctx, g, name, replace, r)
}

func (b *Backup) writeNamed(ctx context.Context, g *gathered, name func(backup.Manifest) string, replace bool, r *node.BackupRecord) (err error) {
	r.Path = name(g.manifest)
	if r.Size, err = b.write(ctx, r.Path, replace, g); err == nil {
		b.describeTo(r, g)
	}
	return err
}

// Stream writes a backup to another host. This one keeps nothing of it, so there is no record. It unlocks the host before it sends: that may
// take long.
func (b *Backup) Stream(ctx context.Context, to io.Writer, unlock func()) error {
	g, err := b.gather(ctx)
	if err != nil {
		return err
	}
	defer g.close()
	unlock()
	if err := g.write(ctx, to, b.Recipients); err != nil {
		return err
	}
	b.describeTo(&node.BackupRecord{}, g)
	return nil
}

// A gathered backup is complete on this host, and not written to its place yet.
type gathered struct {
	manifest backup.Manifest
	snapshot string // a path of its open file
	files    []backup.File
	close    func() error
}

func (g *gathered) write(ctx context.Context, to io.Writer, recipients []age.Recipient) error {
	return backup.Write(backup.Until(ctx, to), g.manifest, g.snapshot, g.files, recipients...)
}

// gather gathers what a backup has. The caller closes the snapshot.
func (b *Backup) gather(ctx context.Context) (g *gathered, err error) {
	c, e, err := node.LocalEtcdClient(ctx, b.Machine)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m, current, err := b.describe(ctx, c, e)
	if err != nil {
		return nil, err
	}
	// Not next to the backup: the snapshot is not encrypted.
	snapshot, err := b.Host.CreateScratch()
	if err != nil {
		return nil, fmt.Errorf("writing to %s: %w", ledger.StateDir, err)
	}
	defer func() {
		if err != nil {
			snapshot.Close()
		}
	}()
	if err = c.Snapshot(ctx, snapshot); err == nil {
		m.Snapshot, err = etcd.VerifySnapshot(snapshot.Name())
	}
	if err != nil {
		return nil, space.Explain(ledger.StateDir, err)
	}
	var stored storedCluster
	if current {
		stored, err = b.fromCluster(ctx)
	} else {
		stored, err = b.fromSnapshot(snapshot.Name())
	}
	if err != nil {
		return nil, err
	}
	files, err := b.collect(&m, stored)
	if err != nil {
		return nil, err
	}
	return &gathered{m, snapshot.Name(), files, snapshot.Close}, nil
}

// describeTo completes the record of a backup that was written, and the summary.
func (b *Backup) describeTo(r *node.BackupRecord, g *gathered) {
	m := g.manifest
	r.Snapshot, r.CACertHash = &m.Snapshot, m.CACertHash
	b.Summary = fmt.Sprintf("%s: %d keys at revision %d, %d files, hash %08x, verified\nto restore only a backup of this cluster: --ca-cert-hash %s",
		r.Path, m.Snapshot.Keys, m.Snapshot.Revision, len(g.files), m.Snapshot.Hash, m.CACertHash)
}

// write writes the archive, and returns its size.
func (b *Backup) write(ctx context.Context, file string, replace bool, g *gathered) (size int64, err error) {
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
	if err := g.write(ctx, out, b.Recipients); err != nil {
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
