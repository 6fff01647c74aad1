package snapshot

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"airlift/installer/backup"
	"airlift/installer/backup/elsewhere"
	"airlift/installer/backup/target"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/fault"
	"airlift/internal/space"
)

const (
	// mostWaiting limits the backups that wait on this host for their target.
	mostWaiting = 3
	// recent is the age of a waiting backup up to which a run does not add another one while the target fails. The timer's service
	// tries again every 15 minutes.
	recent = time.Hour
)

// A Destination is a target on another machine.
type Destination struct {
	Address target.Address
	Config  string // the file with its credentials. It is read by each run
}

// load reads the credentials, and refuses a backup that is not encrypted.
func (b *Backup) load(d Destination) (*target.Config, error) {
	if len(b.Recipients) == 0 {
		return nil, fault.New(fault.Usage, "a backup that is not encrypted must not leave this host: it has all secrets of the cluster").
			Hint("give the public key of age that may decrypt it: --recipient age1…; age-keygen -o key.txt creates a pair")
	}
	return target.Load(d.Config, d.Address)
}

// An outbox has the backups that this host sends to a target.
type outbox struct {
	*Backup
	address target.Address
	config  *target.Config
	dir     string // of backups that wait
	list    *node.BackupList
}

// SaveElsewhere writes an encrypted backup on this host, sends it and all that wait to a target, and then removes the oldest ones of
// this host's list there. What cannot be sent stays for the next run.
func (b *Backup) SaveElsewhere(ctx context.Context, d Destination, keep int) error {
	if err := node.UnfinishedRestore(b.Host); err != nil { // it would push good backups out of the target
		return err
	}
	url := d.Address.String()
	r := node.BackupRecord{Time: time.Now().UTC().Truncate(time.Second), Path: url, Target: url}
	err := b.saveElsewhere(ctx, d, keep, &r)
	if err != nil {
		r.Error, _, _ = strings.Cut(err.Error(), "\n")
	}
	return errors.Join(err, b.record(r))
}

func (b *Backup) saveElsewhere(ctx context.Context, d Destination, keep int, r *node.BackupRecord) error {
	config, err := b.load(d)
	if err != nil {
		return err
	}
	o := &outbox{Backup: b, address: d.Address, config: config}
	if o.list, err = node.ReadBackupList(b.Host); err != nil {
		return err
	}
	if o.dir, err = b.Host.Upgrades().PrepareWaiting(); err != nil {
		return err
	}
	prefix, err := b.clusterPrefix()
	if err != nil {
		return err
	}
	if err := removeUnfinished(o.dir, prefix, pki.NodeName(b.Files())); err != nil {
		return err
	}
	if o.hasRecent(time.Now()) {
		if err := o.connected(ctx, func(s *elsewhere.Store) error { return o.send(ctx, s) }); err != nil {
			return err
		}
	}
	if err := o.nextSecond(ctx); err != nil {
		return err
	}
	written, err := o.add(ctx, prefix, r)
	if err != nil {
		if len(o.waiting()) > 0 { // they may be what fills the disk
			err = errors.Join(err, o.connected(ctx, func(s *elsewhere.Store) error { return o.send(ctx, s) }))
		}
		return err
	}
	local := r.Path
	r.Path = target.Within(r.Target, written.Name)
	return o.connected(ctx, func(s *elsewhere.Store) error {
		if err := o.send(ctx, s); err != nil {
			return err
		}
		fmt.Fprintf(b.Console.Out, "%s\nread back from the target and compared\n", strings.Replace(b.Summary, local, r.Path, 1))
		o.prune(ctx, s, written, keep)
		return o.removeStrays(written)
	})
}

// connected connects to the target, and calls do.
func (o *outbox) connected(ctx context.Context, do func(s *elsewhere.Store) error) error {
	s, err := elsewhere.Open(ctx, o.address, o.config)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

// storeList stores the list before anything in it is done.
func (o *outbox) storeList() error { return node.WriteRecord(o.Host, node.BackupListPath, o.list) }

// waiting returns the indexes of the backups that were not stored at this target, the newest first.
func (o *outbox) waiting() (list []int) {
	for i, c := range o.list.Copies {
		if c.Target == o.address.String() && c.Stored == nil {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(i, j int) int { return compareCopies(o.list.Copies[j], o.list.Copies[i]) })
	return list
}

// compareCopies orders copies of one cluster, the oldest first.
func compareCopies(x, y target.Copy) int {
	a, _ := readName(x.Name)
	b, _ := readName(y.Name)
	return a.compare(b.scheduled)
}

// nextSecond waits until this host has no backup of this second: names have no fractions, and a target keeps what has a name.
func (o *outbox) nextSecond(ctx context.Context) error {
	for {
		now := time.Now()
		if !slices.ContainsFunc(o.list.Copies, func(c target.Copy) bool {
			n, ok := readName(c.Name)
			return ok && n.time == now.UTC().Format(TimeFormat)
		}) {
			return nil
		}
		select {
		case <-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *outbox) hasRecent(now time.Time) bool {
	for _, i := range o.waiting() {
		n, ok := readName(o.list.Copies[i].Name)
		at, err := time.Parse(TimeFormat, n.time)
		if age := now.Sub(at); ok && err == nil && age >= 0 && age < recent && filesystem.Exists(filepath.Join(o.dir, n.name)) {
			return true
		}
	}
	return false
}

// add writes a backup that waits, and adds it to the list. The oldest waiting ones make room.
func (o *outbox) add(ctx context.Context, prefix string, r *node.BackupRecord) (c target.Copy, err error) {
	err = o.SaveNamed(ctx, func(m backup.Manifest) string {
		c = newCopy(o.address, scheduledName(prefix, m, true), m)
		return filepath.Join(o.dir, c.Name)
	}, false, r)
	if err != nil {
		return c, err
	}
	f, err := os.Open(r.Path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	if err := measure(&c, f); err != nil {
		return c, err
	}
	o.list.Copies = append(o.list.Copies, c)
	if err := o.storeList(); err != nil {
		return c, err
	}
	return c, o.makeRoom()
}

// makeRoom removes the oldest waiting files. Their copies stay in the list: a part of them may be at the target.
func (o *outbox) makeRoom() error {
	files := 0
	for _, at := range o.waiting() {
		name := o.list.Copies[at].Name
		if !filesystem.Exists(filepath.Join(o.dir, name)) {
			continue
		}
		if files++; files <= mostWaiting {
			continue
		}
		if err := removeIfExists(filepath.Join(o.dir, name)); err != nil {
			return err
		}
		o.Console.Warn("removed the backup %s, which could not be sent: %d newer ones wait", name, mostWaiting)
	}
	return nil
}

func newCopy(a target.Address, name string, m backup.Manifest) target.Copy {
	return target.Copy{Target: a.String(), Name: name, Token: rand.Text(), Cluster: m.EtcdClusterID, Revision: m.Snapshot.Revision}
}

// measure computes the size and the sha256 of a copy.
func measure(c *target.Copy, f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	c.Size, c.SHA256 = n, hex.EncodeToString(sum.Sum(nil))
	return err
}

func removeIfExists(path string) error {
	if err := filesystem.RemoveOutput(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a backup that waited: %w", err)
	}
	return nil
}

// send sends all waiting backups, and removes what interrupted runs have left of the others.
func (o *outbox) send(ctx context.Context, s *elsewhere.Store) error {
	var gone []string
	for _, i := range o.waiting() {
		c := o.list.Copies[i]
		f, err := os.Open(filepath.Join(o.dir, c.Name))
		if errors.Is(err, fs.ErrNotExist) {
			if err := s.Forget(ctx, c); err != nil {
				o.Console.Warn("%v", err)
				continue
			}
			gone = append(gone, c.Token)
			continue
		}
		if err != nil {
			return err
		}
		if local := c; measure(&local, f) == nil && local.SHA256 != c.SHA256 { // it would fail in each run
			f.Close()
			o.Console.Warn("removed the backup %s, which waited: its bytes have changed on the disk of this host", c.Name)
			if err := removeIfExists(filepath.Join(o.dir, c.Name)); err != nil {
				return err
			}
			if err := s.Forget(ctx, c); err != nil {
				o.Console.Warn("%v", err)
				continue
			}
			gone = append(gone, c.Token)
			continue
		}
		err = s.Deliver(ctx, &c, f)
		f.Close()
		if err != nil {
			return err
		}
		o.list.Copies[i] = c
		if err := o.storeList(); err != nil {
			return err
		}
		if err := removeIfExists(filepath.Join(o.dir, c.Name)); err != nil {
			return err
		}
	}
	return o.forget(gone)
}

// forget removes copies from the list.
func (o *outbox) forget(tokens []string) error {
	if len(tokens) == 0 {
		return nil
	}
	o.list.Copies = slices.DeleteFunc(o.list.Copies, func(c target.Copy) bool { return slices.Contains(tokens, c.Token) })
	return o.storeList()
}

// prune removes the oldest backups of the list that are of the same etcd cluster as the new backup, which stays. What cannot be
// removed is reported, and tried again by the next run.
func (o *outbox) prune(ctx context.Context, s *elsewhere.Store, written target.Copy, keep int) {
	var list []target.Copy
	for _, c := range o.list.Copies {
		if c.Target == written.Target && c.Cluster == written.Cluster && c.Stored != nil && !c.Once {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, compareCopies)
	for _, c := range list[:max(0, len(list)-keep)] {
		if c.Name == written.Name {
			continue
		}
		switch err := s.Remove(ctx, c); {
		case err == nil:
			fmt.Fprintf(o.Console.Out, "removed the old backup %s\n", target.Within(c.Target, c.Name))
		case errors.Is(err, elsewhere.ErrMissing), errors.Is(err, elsewhere.ErrOther):
			o.Console.Warn("%v: it is not in the list of this host any more", err)
		default:
			o.Console.Warn("%v", err)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		if err := o.forget([]string{c.Token}); err != nil {
			o.Console.Warn("%v", err)
		}
	}
}

// removeStrays removes files that are not in the list, because the run that wrote them was killed. A newer backup is at the target. Files of
// another cluster stay: they are from before a reset, and may be the last ones of that cluster. Its etcd cluster may have had the same ID: etcd
// computes it from the name and the address of the first member.
func (o *outbox) removeStrays(written target.Copy) error {
	files, err := os.ReadDir(o.dir)
	if err != nil {
		return err
	}
	own, _ := readName(written.Name)
	for _, f := range files {
		listed := slices.ContainsFunc(o.list.Copies, func(c target.Copy) bool { return c.Name == f.Name() && c.Stored == nil })
		if n, ours := readName(f.Name()); ours && !listed && n.CA == own.CA && n.cluster == own.cluster {
			if err := removeIfExists(filepath.Join(o.dir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// SendOnce sends one backup to a target. No timer removes it there, and this host keeps nothing of it.
func (b *Backup) SendOnce(ctx context.Context, d Destination) error {
	url := d.Address.String()
	r := node.BackupRecord{Time: time.Now().UTC().Truncate(time.Second), Path: url, Target: url}
	err := b.sendOnce(ctx, d, &r)
	if err != nil {
		r.Error, _, _ = strings.Cut(err.Error(), "\n")
	}
	return errors.Join(err, b.record(r))
}

func (b *Backup) sendOnce(ctx context.Context, d Destination, r *node.BackupRecord) error {
	config, err := b.load(d)
	if err != nil {
		return err
	}
	prefix, err := b.clusterPrefix()
	if err != nil {
		return err
	}
	o := &outbox{Backup: b, address: d.Address, config: config, list: &node.BackupList{}}
	if b.Host.Records().Used() {
		if o.list, err = node.ReadBackupList(b.Host); err != nil {
			return err
		}
	}
	if err := o.nextSecond(ctx); err != nil {
		return err
	}
	scratch, err := b.Host.CreateScratch()
	if err != nil {
		return fmt.Errorf("writing to %s: %w", ledger.StateDir, err)
	}
	defer scratch.Close()
	var c target.Copy
	if err := b.gather(ctx, r, func(m backup.Manifest, snapshot string, files []backup.File) error {
		c = newCopy(d.Address, scheduledName(prefix, m, true), m)
		c.Once, r.Path = true, target.Within(r.Target, c.Name)
		return space.Explain(ledger.StateDir, backup.Write(backup.Until(ctx, scratch), m, snapshot, files, b.Recipients...))
	}); err != nil {
		return err
	}
	if err := measure(&c, scratch.File); err != nil {
		return err
	}
	r.Size = c.Size
	o.list.Copies = append(o.list.Copies, c)
	if b.Host.Records().Used() { // the next run removes what a killed one leaves
		if err := o.storeList(); err != nil {
			return err
		}
	}
	if err := o.connected(ctx, func(s *elsewhere.Store) error { return s.Deliver(ctx, &c, scratch.File) }); err != nil {
		return err
	}
	if b.Host.Records().Used() {
		o.list.Copies[len(o.list.Copies)-1] = c
		if err := o.storeList(); err != nil {
			return err
		}
	}
	b.Summary += "\nread back from the target and compared"
	return nil
}

// A Named is a backup by its name alone: of an encrypted one, nothing else can be read without a key.
type Named struct {
	scheduled
	CA   string // the first digits of the hash of its CA
	Node string
}

// readName reads the name of a scheduled backup of any cluster.
func readName(name string) (n Named, ok bool) {
	rest, ours := strings.CutPrefix(name, scheduledPrefix)
	ca, _, found := strings.Cut(rest, "-")
	if !ours || !found || len(ca) != 12 || strings.Trim(ca, "0123456789abcdef") != "" {
		return n, false
	}
	n.CA = ca
	n.scheduled, n.Node, ok = parseName(name, scheduledPrefix+ca+"-")
	return n, ok && n.cluster != ""
}

// newest returns the backup to restore. Between etcd clusters of the same CA, the one with the highest revision must also be the
// last one, because a restore begins a new etcd cluster and increases the revision.
func newest(at string, list []Listed, hashes []string) (Listed, error) {
	if len(hashes) > 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(l Listed) bool {
			return !slices.ContainsFunc(hashes, func(h string) bool { return strings.HasPrefix(strings.TrimPrefix(strings.ToLower(h), "sha256:"), l.CA) })
		})
	}
	if len(list) == 0 {
		return Listed{}, fault.New(fault.Usage, "%s has no backup of this cluster", at).Hint("see what is there: ./install etcd list " + at + " --target-config FILE")
	}
	last := slices.MaxFunc(list, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.Time.Compare(b.Time), strings.Compare(a.Name, b.Name))
	})
	for _, l := range list {
		if l.CA != last.CA || l.EtcdClusterID != last.EtcdClusterID && l.Time.After(last.Time) {
			return Listed{}, fault.New(fault.Usage, "%s has backups of more than one cluster, such as %s and %s", at, last.Name, l.Name).
				Hint("name one: ./install etcd restore " + target.Within(at, last.Name) + " --target-config FILE --identity FILE; or give the hash of the cluster's CA: --ca-cert-hash")
		}
	}
	return last, nil
}
