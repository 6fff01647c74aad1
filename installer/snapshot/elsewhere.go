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

	"filippo.io/age"

	"airlift/installer/backup"
	"airlift/installer/backup/elsewhere"
	"airlift/installer/backup/target"
	"airlift/installer/host"
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
	Config  string         // the file with its credentials
	loaded  *target.Config // nil before it was read
}

// load reads the credentials once, and refuses a backup that is not encrypted.
func (b *Backup) load(d *Destination) (err error) {
	if len(b.Recipients) == 0 {
		return fault.New(fault.Usage, "a backup that is not encrypted must not leave this host: it has all secrets of the cluster").
			Hint("give the public key of age that may decrypt it: --recipient age1…; age-keygen -o key.txt creates a pair")
	}
	if d.loaded == nil {
		d.loaded, err = target.Load(d.Config, d.Address)
	}
	return err
}

// An outbox has the backups that this host sends to a target. It has the lock of the host only while it changes the host, not while it
// sends: meanwhile another command may upgrade or reset the host.
type outbox struct {
	*Backup
	address target.Address
	config  *target.Config
	dir     string // of backups that wait
	// list is nil before the host was locked for the first time. Only the process that has the lock for sending changes it, and reset.
	list    *node.BackupList
	managed bool // Airlift installed the host, and so there is a list
}

var errReset = errors.New("this host was reset while the command sent a backup")

// locked calls do with the lock of the host, and its list as it is now. It waits for another installer, but not the first time.
func (o *outbox) locked(ctx context.Context, do func() error) error {
	before := o.list
	if before != nil && !o.managed {
		return do()
	}
	return o.Backup.locked(ctx, before != nil, func() (err error) {
		o.managed = o.Host.Records().Used()
		list := &node.BackupList{}
		if o.managed {
			if list, err = node.ReadBackupList(o.Host); err != nil {
				return err
			}
		}
		if before != nil && list.ID != before.ID {
			return fault.Wrap(errReset, fault.Failure, "what it has sent stays there: ./install etcd list "+o.address.String()+" --target-config FILE")
		}
		if o.list = list; before == nil && list.ID == "" { // of an earlier version, or the first one
			if err := o.storeList(); err != nil {
				return err
			}
		}
		return do()
	})
}

// sending does something with the outbox of a target, and records the result. No other process sends meanwhile. If it has succeeded, then is
// called with the lock of the host.
func (b *Backup) sending(ctx context.Context, d Destination, timer bool, do func(o *outbox, r *node.BackupRecord) error, then func() error) error {
	release, err := host.LockSending(b.Host.Root)
	if err != nil {
		return err
	}
	defer release()
	url := d.Address.String()
	r := node.BackupRecord{Time: time.Now().UTC().Truncate(time.Second), Path: url, Target: url}
	o := &outbox{Backup: b, address: d.Address}
	if err = b.load(&d); err == nil {
		o.config = d.loaded
		err = do(o, &r)
	} else if locked := o.locked(ctx, func() error { return nil }); locked != nil {
		return errors.Join(err, locked)
	}
	if o.list == nil || errors.Is(err, errReset) {
		return err
	}
	return errors.Join(err, o.locked(ctx, func() error {
		if rerr := b.record(r, url, timer, err); err != nil || rerr != nil {
			return rerr
		}
		return then()
	}))
}

func nothing() error { return nil }

// SaveElsewhere writes an encrypted backup on this host, sends it and all that wait to a target, and then removes the oldest ones of
// this host's list there. What cannot be sent stays for the next run.
func (b *Backup) SaveElsewhere(ctx context.Context, d Destination, keep int) error {
	return b.saveElsewhere(ctx, d, keep, nothing)
}

func (b *Backup) saveElsewhere(ctx context.Context, d Destination, keep int, then func() error) error {
	return b.sending(ctx, d, true, func(o *outbox, r *node.BackupRecord) error { return o.save(ctx, keep, r) }, then)
}

func (o *outbox) save(ctx context.Context, keep int, r *node.BackupRecord) error {
	var prefix string
	var written target.Copy
	var resend bool
	add := func() (err error) {
		if err = o.nextSecond(ctx); err == nil {
			written, err = o.add(ctx, prefix, r)
		}
		return err
	}
	if err := o.locked(ctx, func() (err error) {
		if prefix, err = o.prepare(); err != nil {
			return err
		}
		if resend = o.hasRecent(time.Now()); resend {
			return nil
		}
		return add()
	}); err != nil {
		return o.sendAnyway(ctx, err)
	}
	if resend {
		if err := o.connected(ctx, o.send); err != nil {
			return err
		}
		if err := o.locked(ctx, add); err != nil {
			return err
		}
	}
	local := r.Path
	r.Path = target.Within(r.Target, written.Name)
	return o.connected(ctx, func(ctx context.Context, s *elsewhere.Store) error {
		if err := o.send(ctx, s); err != nil {
			return err
		}
		fmt.Fprintf(o.Console.Out, "%s\nread back from the target and compared\n", strings.Replace(o.Summary, local, r.Path, 1))
		if err := o.prune(ctx, s, written, keep); err != nil {
			return err
		}
		return o.locked(ctx, func() error { return o.removeStrays(written) })
	})
}

// prepare removes what killed runs have left on this host, and returns how the names of this cluster's backups begin.
func (o *outbox) prepare() (prefix string, err error) {
	if err := node.UnfinishedRestore(o.Host); err != nil { // it would push good backups out of the target
		return "", err
	}
	if o.dir, err = o.Host.Upgrades().PrepareWaiting(); err != nil {
		return "", err
	}
	if prefix, err = o.clusterPrefix(); err != nil {
		return "", err
	}
	if err := removeUnfinished(o.dir, prefix, pki.NodeName(o.Files())); err != nil {
		return "", err
	}
	return prefix, o.redirect()
}

// redirect assigns backups that wait for the target of an earlier timer to this target.
func (o *outbox) redirect() error {
	url, key, changed := o.address.String(), recipientsID(o.Recipients), false
	for _, c := range o.list.Waiting(o.Host) {
		switch {
		case c.Target == url:
		case c.Recipients == key:
			fmt.Fprintf(o.Console.Out, "%s, which waits on this host for %s, is sent to %s\n", c.Name, c.Target, url)
			i := slices.IndexFunc(o.list.Copies, func(other target.Copy) bool { return other.Token == c.Token })
			o.list.Copies[i].Target, changed = url, true
		default:
			o.Console.Warn("%s waits for %s and is encrypted for other recipients, so it is not sent to %s: copy it to another machine, or remove it",
				filepath.Join(host.WaitingBackups, c.Name), c.Target, url)
		}
	}
	if !changed {
		return nil
	}
	return o.storeList()
}

// recipientsID identifies recipients in any order, "" if one is a passphrase.
func recipientsID(list []age.Recipient) string {
	var keys []string
	for _, r := range list {
		key, ok := r.(fmt.Stringer)
		if !ok {
			return ""
		}
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(slices.Compact(keys), "\n"))))
}

// sendAnyway sends what waits although no new backup can be written: the waiting ones may be what fills the disk.
func (o *outbox) sendAnyway(ctx context.Context, err error) error {
	if o.list == nil || o.dir == "" || len(o.waiting()) == 0 {
		return err
	}
	return errors.Join(err, o.connected(ctx, o.send))
}

// connected connects to the target, and calls do.
func (o *outbox) connected(ctx context.Context, do func(ctx context.Context, s *elsewhere.Store) error) error {
	s, err := elsewhere.Open(ctx, o.address, o.config)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(ctx, s)
}

// storeList stores the list before anything in it is done.
func (o *outbox) storeList() error {
	if !o.managed {
		return nil
	}
	o.list.ID = cmp.Or(o.list.ID, rand.Text())
	return node.WriteRecord(o.Host, node.BackupListPath, o.list)
}

// update replaces a copy of the list, or removes it if there is none.
func (o *outbox) update(token string, by ...target.Copy) error {
	if i := slices.IndexFunc(o.list.Copies, func(c target.Copy) bool { return c.Token == token }); i >= 0 {
		o.list.Copies = slices.Replace(o.list.Copies, i, i+1, by...)
	}
	return o.storeList()
}

// waiting returns the backups that were not stored at this target, the newest first.
func (o *outbox) waiting() (list []target.Copy) {
	for _, c := range o.list.Copies {
		if c.Target == o.address.String() && c.Stored == nil {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(x, y target.Copy) int { return compareCopies(y, x) })
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
	for _, c := range o.waiting() {
		n, ok := readName(c.Name)
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
		c = o.newCopy(scheduledName(prefix, m, true), m)
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
	for _, c := range o.waiting() {
		name := c.Name
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

func (o *outbox) newCopy(name string, m backup.Manifest) target.Copy {
	return target.Copy{Target: o.address.String(), Name: name, Token: rand.Text(), Recipients: recipientsID(o.Recipients), Cluster: m.EtcdClusterID, Revision: m.Snapshot.Revision}
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
	for _, c := range o.waiting() {
		file := filepath.Join(o.dir, c.Name)
		f, err := os.Open(file)
		local := c
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = o.giveUp(ctx, s, c)
		case err != nil:
		case measure(&local, f) == nil && local.SHA256 != c.SHA256: // it would fail in each run
			o.Console.Warn("removed the backup %s, which waited: its bytes have changed on the disk of this host", c.Name)
			if err = o.locked(ctx, func() error { return removeIfExists(file) }); err == nil {
				err = o.giveUp(ctx, s, c)
			}
		default:
			if err = s.Deliver(ctx, &c, f); err == nil {
				err = o.locked(ctx, func() error {
					if err := o.update(c.Token, c); err != nil {
						return err
					}
					return removeIfExists(file)
				})
			}
		}
		if f != nil {
			f.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// giveUp removes what interrupted runs have left at the target of a backup that this host does not have any more.
func (o *outbox) giveUp(ctx context.Context, s *elsewhere.Store, c target.Copy) error {
	if err := s.Forget(ctx, c); err != nil {
		o.Console.Warn("%v", err)
		return nil
	}
	return o.locked(ctx, func() error { return o.update(c.Token) })
}

// prune removes the oldest backups of the list that are of the same etcd cluster as the new backup, which stays. What cannot be
// removed is reported, and tried again by the next run.
func (o *outbox) prune(ctx context.Context, s *elsewhere.Store, written target.Copy, keep int) error {
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
				return nil
			}
			continue
		}
		if err := o.locked(ctx, func() error { return o.update(c.Token) }); err != nil {
			return err
		}
	}
	return nil
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
	return b.sending(ctx, d, false, func(o *outbox, r *node.BackupRecord) error { return o.sendOnce(ctx, r) }, nothing)
}

func (o *outbox) sendOnce(ctx context.Context, r *node.BackupRecord) error {
	var scratch *host.Scratch
	var c target.Copy
	err := o.locked(ctx, func() (err error) {
		prefix, err := o.clusterPrefix()
		if err != nil {
			return err
		}
		if err := o.nextSecond(ctx); err != nil {
			return err
		}
		if scratch, err = o.Host.CreateScratch(); err != nil {
			return fmt.Errorf("writing to %s: %w", ledger.StateDir, err)
		}
		g, err := o.gather(ctx)
		if err != nil {
			return err
		}
		defer g.close()
		c = o.newCopy(scheduledName(prefix, g.manifest, true), g.manifest)
		c.Once, r.Path = true, target.Within(r.Target, c.Name)
		if err := g.write(ctx, scratch, o.Recipients); err != nil {
			return space.Explain(ledger.StateDir, err)
		}
		o.describeTo(r, g)
		if err := measure(&c, scratch.File); err != nil {
			return err
		}
		r.Size = c.Size
		o.list.Copies = append(o.list.Copies, c)
		return o.storeList() // the next run removes what a killed one leaves
	})
	if scratch != nil {
		defer scratch.Close()
	}
	if err != nil {
		return err
	}
	if err := o.connected(ctx, func(ctx context.Context, s *elsewhere.Store) error { return s.Deliver(ctx, &c, scratch.File) }); err != nil {
		return err
	}
	o.Summary += "\nread back from the target and compared"
	return o.locked(ctx, func() error { return o.update(c.Token, c) })
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
