package snapshot

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/installer/backup"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/host/filesystem"
	"airlift/installer/node"
	"airlift/installer/pki"
)

// scheduledPrefix begins the names of scheduled backups. The start of the hash of the cluster's CA follows,
// the time, the node, the ID of the etcd cluster and its revision: so an encrypted one can also be
// identified, and no two nodes write the same name.
const scheduledPrefix = "airlift-backup-"

// TimeFormat is the format of the time in the name of a backup.
const TimeFormat = "20060102T150405Z"

// checkDirectory refuses a directory if mountPoint is set and the directory's file system is not
// mounted there.
func checkDirectory(dir, mountPoint string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err != nil {
		return unusable(dir, err)
	}
	now, err := detection.MountPoint(dir)
	if err == nil && mountPoint != "" && now != mountPoint {
		err = fmt.Errorf("no file system is mounted at %s: the directory is on that at %s", mountPoint, now)
	}
	if err != nil {
		return unusable(dir, err)
	}
	return nil
}

// SaveInDirectory writes a backup with the time in its name, and then removes the oldest ones of
// this cluster in the directory. If mountPoint is set, it fails if the directory's file system is
// not mounted there: the drive may be missing.
func (b *Backup) SaveInDirectory(ctx context.Context, dir, mountPoint string, keep int) error {
	return b.saveInDirectory(ctx, dir, mountPoint, keep, nothing)
}

func (b *Backup) saveInDirectory(ctx context.Context, dir, mountPoint string, keep int, then func() error) error {
	release, err := host.LockSending(b.Host.Root)
	if err != nil {
		return err
	}
	defer release()
	if err := node.UnfinishedRestore(b.Host); err != nil { // it would push good backups out of the directory
		return err
	}
	if err := checkDirectory(dir, mountPoint); err != nil {
		return errors.Join(err, b.locked(ctx, false, func() error {
			return b.record(node.BackupRecord{Time: time.Now().UTC().Truncate(time.Second), Path: dir}, dir, true, err)
		}))
	}
	prefix, err := b.clusterPrefix()
	if err != nil {
		return err
	}
	if err := removeUnfinished(dir, prefix, pki.NodeName(b.Files())); err != nil {
		return err
	}
	r, err := b.saveAs(ctx, dir, func(m backup.Manifest) string {
		return filepath.Join(dir, scheduledName(prefix, m, len(b.Recipients) > 0))
	}, false, true, func() error {
		fmt.Fprintln(b.Console.Out, b.Summary)
		return then()
	})
	if err != nil {
		return err
	}
	return b.prune(dir, prefix, filepath.Base(r.Path), keep)
}

// unknownNode is in the names of backups of a host whose node name cannot be read.
const unknownNode = "unknown"

// nodeInName is a node in the name of its backups. A longer name ends with its hash: file systems limit
// the name of a file to 255 bytes.
func nodeInName(node string) string {
	const longest = 100
	if len(node) > longest {
		hash := fmt.Sprintf("-%.8x", sha256.Sum256([]byte(node)))
		node = node[:longest-len(hash)] + hash
	}
	return cmp.Or(node, unknownNode)
}

func scheduledName(prefix string, m backup.Manifest, encrypted bool) string {
	name := fmt.Sprintf("%s%s-%s-%s-%d.tar", prefix, m.Created.UTC().Format(TimeFormat), nodeInName(m.Node), m.EtcdClusterID, m.Snapshot.Revision)
	if encrypted {
		name += ".age"
	}
	return name
}

// clusterPrefix begins the names of this cluster's scheduled backups.
func (b *Backup) clusterPrefix() (string, error) {
	e, err := node.OwnEtcd(b.Host)
	if err != nil {
		return "", err
	}
	ca, err := os.ReadFile(b.Host.Path(filepath.Join(e.Certificates, "ca.crt")))
	if err != nil {
		return "", fmt.Errorf("reading the cluster's CA: %w", err)
	}
	hash, err := node.CAHash(ca)
	if err != nil {
		return "", err
	}
	return scheduledPrefix + shortHash(hash) + "-", nil
}

// shortHash is the start of the hash of a CA, as names of backups have it.
func shortHash(hash string) string {
	hash = strings.TrimPrefix(hash, "sha256:")
	return hash[:min(len(hash), 12)]
}

// removeUnfinished removes the parts of backups that killed runs of this node have left in a directory.
// Another node may be writing now.
func removeUnfinished(dir, prefix, node string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range list {
		name, unfinished := filesystem.UnfinishedOutput(f.Name())
		rest, ours := strings.CutPrefix(name, prefix)
		if m := scheduledRest.FindStringSubmatch(rest); !unfinished || !ours || m == nil || m[2] != nodeInName(node) {
			continue
		}
		if err := filesystem.RemoveOutput(filepath.Join(dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the part of a backup: %w", err)
		}
	}
	return nil
}

// prune removes the oldest backups in a directory that are of the same etcd cluster as the new
// backup, which stays. Clocks may have been wrong, so backups are ordered by etcd's revision.
func (b *Backup) prune(dir, prefix, written string, keep int) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var backups []scheduled
	for _, f := range list {
		if s, ok := readScheduled(dir, f, prefix); ok {
			backups = append(backups, s)
		}
	}
	i := slices.IndexFunc(backups, func(s scheduled) bool { return s.name == written })
	if i < 0 {
		return nil // another process has moved it
	}
	cluster := backups[i].cluster
	backups = slices.DeleteFunc(backups, func(s scheduled) bool { return s.cluster != cluster })
	slices.SortFunc(backups, scheduled.compare)
	for _, s := range backups[:max(0, len(backups)-keep)] {
		if s.name == written {
			continue
		}
		path := filepath.Join(dir, s.name)
		if err := filesystem.RemoveOutput(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the old backup %s: %w", path, err)
		}
		fmt.Fprintf(b.Console.Out, "removed the old backup %s\n", path)
	}
	return nil
}

// A scheduled is a file that is a scheduled backup.
type scheduled struct {
	name, time string
	cluster    string // etcd's ID
	revision   int64
}

// compare orders backups of one cluster, the oldest first.
func (s scheduled) compare(o scheduled) int {
	return cmp.Or(cmp.Compare(s.revision, o.revision), strings.Compare(s.time, o.time), strings.Compare(s.name, o.name))
}

// scheduledRest matches the name of a scheduled backup after its prefix: the time, the node, etcd's ID
// and revision. Older installers wrote only the time.
var scheduledRest = regexp.MustCompile(`^([0-9]{8}T[0-9]{6}Z)(?:-([a-z0-9.-]+)-([0-9a-f]{16})-([0-9]{1,18}))?\.tar(?:\.age)?$`)

// parseName reads the name of a scheduled backup, of any cluster if prefix is scheduledPrefix alone.
func parseName(name, prefix string) (s scheduled, node string, ok bool) {
	rest, ours := strings.CutPrefix(name, prefix)
	m := scheduledRest.FindStringSubmatch(rest)
	if !ours || m == nil {
		return s, "", false
	}
	s = scheduled{name: name, time: m[1], cluster: m[3]}
	s.revision, _ = strconv.ParseInt(m[4], 10, 64) // 0 if the name has no revision
	return s, m[2], true
}

// readScheduled reads a directory entry. ok is false if it is not a scheduled backup with this prefix.
func readScheduled(dir string, entry fs.DirEntry, prefix string) (s scheduled, ok bool) {
	s, _, ok = parseName(entry.Name(), prefix)
	if !ok || !entry.Type().IsRegular() {
		return s, false
	}
	f, err := os.Open(filepath.Join(dir, s.name))
	if err != nil {
		return s, false
	}
	defer f.Close()
	manifest, err := backup.ReadManifest(f)
	if err == nil {
		s.cluster, s.revision = manifest.EtcdClusterID, manifest.Snapshot.Revision
	}
	return s, err == nil || errors.Is(err, backup.ErrEncrypted)
}
