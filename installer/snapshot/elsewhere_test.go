package snapshot

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"pgregory.net/rapid"

	"airlift/installer/backup"
	"airlift/installer/backup/elsewhere"
	"airlift/installer/backup/target"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/s3host"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/sftphost"
	"airlift/scripts/fixtures/testhost"
)

// A writer is a control plane that sends backups to a target.
type writer struct {
	node, ca string
	cluster  uint64
	root     string
	config   string
	address  target.Address
	key      *age.X25519Identity
	out      *bytes.Buffer
}

// failer is what a test and a generated sequence have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// open opens the host of the writer, as each run does.
func (w *writer) open(t failer) *outbox {
	t.Helper()
	h, err := host.Open(w.root)
	if err != nil {
		t.Fatal(err)
	}
	if !h.Records().Used() { // of init
		if err := h.Records().Record(ledger.Entry{Kind: ledger.Owned, Name: "/etc/kubernetes"}); err != nil {
			t.Fatal(err)
		}
	}
	o := &outbox{Backup: New(h, &workflow.Console{Out: w.out}), address: w.address, managed: true}
	o.Recipients = []age.Recipient{w.key.Recipient()}
	o.Open = func() (*host.Host, func(), error) { return host.OpenLocked(w.root) }
	if o.config, err = target.Parse("target.yaml", []byte(w.config), w.address); err != nil {
		t.Fatal(err)
	}
	if o.list, err = node.ReadBackupList(h); err != nil {
		t.Fatal(err)
	}
	if o.dir, err = h.Upgrades().PrepareWaiting(); err != nil {
		t.Fatal(err)
	}
	return o
}

// save does what the timer does after it has read etcd. With stop, it ends as a killed run does after so many steps.
func (w *writer) save(ctx context.Context, t failer, revision int64, keep, stop int) (name string, err error) {
	t.Helper()
	o := w.open(t)
	m := backup.Manifest{Created: time.Now(), Node: w.node, EtcdClusterID: fmt.Sprintf("%016x", w.cluster), CACertHash: "sha256:" + w.ca, Snapshot: etcd.Snapshot{Revision: revision, Size: 4}}
	c := o.newCopy(scheduledName(scheduledPrefix+w.ca+"-", m, true), m)
	file := filepath.Join(o.dir, c.Name)
	w.archive(t, file, m)
	if stop == 1 {
		return c.Name, nil
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(measure(&c, f), f.Close()); err != nil {
		t.Fatal(err)
	}
	o.list.Copies = append(o.list.Copies, c)
	if err := o.storeList(); err != nil {
		t.Fatal(err)
	}
	if err := o.makeRoom(); err != nil {
		t.Fatal(err)
	}
	if stop == 2 {
		return c.Name, nil
	}
	return c.Name, o.connected(ctx, func(ctx context.Context, s *elsewhere.Store) error {
		if stop == 3 { // stored, and not recorded
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			return s.Deliver(ctx, &c, f)
		}
		if err := o.send(ctx, s); err != nil {
			return err
		}
		if stop == 4 {
			return nil
		}
		if err := o.prune(ctx, s, c, keep); err != nil {
			return err
		}
		return o.locked(ctx, func() error { return o.removeStrays(c) })
	})
}

// archive writes an encrypted backup.
func (w *writer) archive(t failer, file string, m backup.Manifest) {
	t.Helper()
	snapshot := file + ".db"
	if err := os.WriteFile(snapshot, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(snapshot)
	var archive bytes.Buffer
	if err := backup.Write(&archive, m, snapshot, neededFiles, w.key.Recipient()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newWriter(t *testing.T, name, ca string, cluster uint64, url, config string) *writer {
	t.Helper()
	a, err := target.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{node: name, ca: ca, cluster: cluster, root: t.TempDir(), config: config, address: a, key: key, out: new(bytes.Buffer)}
	if err := os.MkdirAll(filepath.Join(w.root, "var", "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

func overSFTP(t testing.TB) (h *sftphost.Host, url, config, dir string) {
	h, dir = sftphost.Start(t), t.TempDir()
	return h, "sftp://backup@" + h.Address + dir, h.Config(), dir
}

// TestRetentionElsewhere: three control planes of a cluster and one of another one write to the same place, with runs that are killed
// and connections that are cut, next to files of others. No file of others is removed or changed, and after a run that ended well the
// newest backups of its control plane can be restored.
func TestRetentionElsewhere(t *testing.T) {
	t.Run("SFTP", func(t *testing.T) {
		h, url, config, dir := overSFTP(t)
		retention(t, url, config, dir, h.CutAfter)
	})
	t.Run("S3", func(t *testing.T) {
		h := s3host.Start(t, false)
		dir := filepath.Join(h.Dir, "backups", "plant")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		retention(t, "s3://backups/plant", s3host.Config(h.Endpoint), dir, func(int64) {})
	})
}

func retention(t *testing.T, url, config, dir string, cut func(int64)) {
	rapid.Check(t, func(rt *rapid.T) {
		if err := emptied(dir); err != nil {
			rt.Fatal(err)
		}
		writers := []*writer{
			newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config), newWriter(t, "cp-2", "aaaaaaaaaaaa", 1, url, config),
			newWriter(t, "cp-3", "aaaaaaaaaaaa", 1, url, config), newWriter(t, "cp-1", "bbbbbbbbbbbb", 2, url, config),
		}
		keep, revision := rapid.IntRange(1, 3).Draw(rt, "keep"), int64(0)
		others, good := map[string]string{}, map[*writer][]string{}
		for i := range rapid.IntRange(3, 9).Draw(rt, "steps") {
			w := writers[rapid.IntRange(0, len(writers)-1).Draw(rt, "writer")]
			if rapid.IntRange(0, 3).Draw(rt, "others") == 0 { // of an administrator, of a host that was reset, of another command
				revision++
				name := rapid.SampledFrom([]string{"notes.txt", scheduledPrefix + "copy.tar.age", scheduledName(scheduledPrefix+w.ca+"-", backup.Manifest{
					Created: time.Unix(int64(i), 0), Node: w.node, EtcdClusterID: fmt.Sprintf("%016x", w.cluster), Snapshot: etcd.Snapshot{Revision: revision},
				}, true)}).Draw(rt, "name")
				others[name] = fmt.Sprint("others ", i)
				if err := os.WriteFile(filepath.Join(dir, name), []byte(others[name]), 0o644); err != nil {
					rt.Fatal(err)
				}
				continue
			}
			revision++
			stop := max(0, rapid.IntRange(-4, 4).Draw(rt, "stop"))
			isCut := rapid.IntRange(0, 5).Draw(rt, "cut") == 0
			if isCut {
				cut(rapid.Int64Range(1000, 6000).Draw(rt, "after"))
			}
			name, err := w.save(t.Context(), rt, revision, keep, stop)
			cut(0)
			if err == nil && stop == 0 {
				good[w] = append(good[w], name)
				w.restores(rt, name)
				list := w.open(rt).list
				stored := 0
				for _, c := range list.Copies {
					if c.Stored == nil {
						rt.Fatalf("after a run that ended well, %s is not stored", c.Name)
					}
					stored++
					w.restores(rt, c.Name)
				}
				if want := min(keep, len(good[w])); stored < want || stored > keep && !isCut {
					rt.Fatalf("%s has %d backups of %d that ended well, want %d", w.node, stored, len(good[w]), keep)
				}
			}
			for name, want := range others {
				if is, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(is) != want {
					rt.Fatalf("%s, which is not of these hosts, is %q, %v", name, is, err)
				}
			}
		}
	})
}

func emptied(dir string) error {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// restores reads a backup at the target as a restore does.
func (w *writer) restores(t failer, name string) {
	t.Helper()
	h, err := host.Open(w.root)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.root, rand.Text())
	if err := os.WriteFile(file, []byte(w.config), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	f, err := OpenElsewhere(context.Background(), h, target.Within(w.address.String(), name), file, nil, []age.Identity{w.key})
	if err != nil {
		t.Fatalf("%s cannot be restored: %v (%s)", name, err, fault.Hint(err))
		return
	}
	if err := errors.Join(f.CopySnapshot(context.Background(), io.Discard), f.Close()); err != nil {
		t.Fatalf("%s cannot be restored: %v", name, err)
	}
}

// TestTargetThatFails: backups wait on the host, at most three, and the next run sends them.
func TestTargetThatFails(t *testing.T) {
	h, url, config, dir := overSFTP(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	h.CutAfter(2000)
	var names []string
	for i := range 2 {
		name, err := w.save(t.Context(), t, int64(i+1), 8, 0)
		if err == nil || fault.Hint(err) == "" || strings.Contains(err.Error(), sftphost.Password) {
			t.Errorf("%v (%s)", err, fault.Hint(err))
		}
		names = append(names, name)
	}
	o := w.open(t)
	if !o.hasRecent(time.Now()) || o.hasRecent(time.Now().Add(2*recent)) || len(o.list.Waiting(o.Host)) != 2 || o.list.LastStored(url) != nil {
		t.Errorf("%+v", o.list)
	}
	h.CutAfter(0)
	name, err := w.save(t.Context(), t, 3, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	for _, name := range []string{names[1], name} {
		w.restores(t, name)
	}
	if left, err := os.ReadDir(o.dir); err != nil || len(left) > 0 {
		t.Errorf("still on the host: %v, %v", left, err)
	}
	d, err := node.Departed(o.Host, &node.BackupRecord{Target: url})
	if err != nil || d.Waiting != 0 || d.Left == nil || !slices.Contains([]string{name, names[0], names[1]}, d.Name) {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestWrongBytesAtARestore: a backup that was damaged at the target is refused.
func TestWrongBytesAtARestore(t *testing.T) {
	_, url, config, dir := overSFTP(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	name, err := w.save(t.Context(), t, 1, 8, 0)
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "target.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var", "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		bad := slices.Clone(good)
		if at := rapid.IntRange(0, len(bad)-1).Draw(t, "at"); rapid.Bool().Draw(t, "short") {
			bad = bad[:at]
		} else {
			bad[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		if err := os.WriteFile(filepath.Join(dir, name), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenElsewhere(context.Background(), h, url, file, nil, []age.Identity{w.key})
		if err == nil {
			f.Close()
			t.Fatal("a damaged backup was opened")
		}
	})
	if left := remaining(t, h.Path("/")); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}

// TestUnencryptedBackupStays: it is refused before anything is read or sent.
func TestUnencryptedBackupStays(t *testing.T) {
	root := t.TempDir()
	b := New(testhost.Open(t, root), &workflow.Console{Out: io.Discard})
	b.Open = func() (*host.Host, func(), error) { return host.OpenLocked(root) }
	a, err := target.ParseURL("s3://backups/plant")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{b.SendOnce(t.Context(), Destination{Address: a}), b.SaveElsewhere(t.Context(), Destination{Address: a}, 1)} {
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "--recipient") {
			t.Errorf("%v (%s)", err, fault.Hint(err))
		}
	}
}

// TestNewest: the newest backup of a cluster, and an error if it is not clear which cluster is meant.
func TestNewest(t *testing.T) {
	item := func(ca string, hours int, node string, cluster uint64, revision int64) elsewhere.Item {
		m := backup.Manifest{Created: right.Add(time.Duration(hours) * time.Hour), Node: node, EtcdClusterID: fmt.Sprintf("%016x", cluster), Snapshot: etcd.Snapshot{Revision: revision}}
		return elsewhere.Item{Name: scheduledName(scheduledPrefix+ca+"-", m, true)}
	}
	const a, b = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
	for name, c := range map[string]struct {
		items  []elsewhere.Item
		hashes []string
		want   int // -1 for an error
	}{
		"by revision, whatever the clock was": {[]elsewhere.Item{item(a, 9, "x", 1, 5), item(a, 1, "y", 1, 7)}, nil, 1},
		"after a restore":                     {[]elsewhere.Item{item(a, 1, "x", 1, 50), item(a, 2, "x", 2, 1_000_000_060)}, nil, 1},
		"a new etcd":                          {[]elsewhere.Item{item(a, 1, "x", 1, 50), item(a, 2, "x", 2, 10)}, nil, -1},
		"two clusters":                        {[]elsewhere.Item{item(a, 1, "x", 1, 5), item(b, 1, "x", 2, 5)}, nil, -1},
		"two clusters, with the hash":         {[]elsewhere.Item{item(a, 1, "x", 1, 5), item(b, 1, "x", 2, 5)}, []string{"sha256:" + b + strings.Repeat("0", 52)}, 1},
		"another hash":                        {[]elsewhere.Item{item(a, 1, "x", 1, 5)}, []string{"sha256:" + b}, -1},
		"no backup":                           {[]elsewhere.Item{{Name: "x.tar"}}, nil, -1},
	} {
		got, err := newest("s3://b/p", listed(c.items), c.hashes)
		switch {
		case c.want < 0 && (err == nil || fault.ExitCode(err) != fault.Usage || fault.Hint(err) == ""):
			t.Errorf("%s: %v, %v", name, got, err)
		case c.want >= 0 && (err != nil || got.Name != c.items[c.want].Name):
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestScheduledTarget: the unit and its configuration name the URL and files, and no secret.
func TestScheduledTarget(t *testing.T) {
	a, err := target.ParseURL("sftp://backup@nas:2222/srv/k8s")
	if err != nil {
		t.Fatal(err)
	}
	s := Schedule{Elsewhere: &Destination{Address: a, Config: "/root/target.yaml"}, Every: 6 * time.Hour, Keep: 4, Recipients: "age1a\n"}
	if got, err := s.command(node.AdminConf, ""); err != nil || got != `etcd snapshot "sftp://backup@nas:2222/srv/k8s" --scheduled --keep 4 --target-config `+target.ConfigPath+` --recipients-file `+recipientsPath {
		t.Errorf("%q, %v", got, err)
	}
	settings := s.settings(node.AdminConf)
	if want := "etcd snapshot sftp://backup@nas:2222/srv/k8s --every 6h0m0s --keep 4 --time-zone UTC --recipient age1a"; settings != want {
		t.Errorf("%q, want %q", settings, want)
	}
	h := testhost.Open(t, t.TempDir())
	timers := map[string]string{backupTimer.Name: settings}
	if _, err := h.WriteFile(target.ConfigPath, []byte("of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MarkTarget(h, timers); err != nil || timers[backupTimer.Name] != settings+" "+target.Mark(target.Digest(a.String(), []byte("of the host"))) {
		t.Errorf("%q, %v", timers, err)
	}
}

func TestListOfADirectory(t *testing.T) {
	d := newBackupDir(t)
	name := d.save("one-two", right, 1, 7, true)
	d.put("notes.txt", nil)
	l, err := List(t.Context(), d.dir, "")
	if err != nil || len(l.Backups) != 1 || l.Backups[0].Name != name || l.Backups[0].Node != "one-two" || l.Backups[0].Revision != 7 || !l.Backups[0].Time.Equal(right) {
		t.Errorf("%+v, %v", l, err)
	}
	var text bytes.Buffer
	if err := l.Write(&text); err != nil || !strings.Contains(text.String(), name) {
		t.Errorf("%s, %v", &text, err)
	}
}

// TestTargetThatIsAwayForLong: each backup that makes room is reported once, and is not counted any more.
func TestTargetThatIsAwayForLong(t *testing.T) {
	h, url, config, _ := overSFTP(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	o := w.open(t)
	for i := range 3 { // sent by a person, while the target was away
		o.list.Copies = append(o.list.Copies, target.Copy{Target: url, Name: fmt.Sprint("once-", i), Token: rand.Text(), Once: true})
	}
	if err := o.storeList(); err != nil {
		t.Fatal(err)
	}
	h.CutAfter(2000)
	const runs = mostWaiting + 4
	for i := range runs {
		if _, err := w.save(t.Context(), t, int64(i+1), 8, 0); err == nil {
			t.Fatal("the target was not away")
		}
		o := w.open(t)
		files, err := os.ReadDir(o.dir)
		if want := min(i+1, mostWaiting); err != nil || len(files) != want || len(o.list.Waiting(o.Host)) != want {
			t.Errorf("after %d runs, %d files and %d backups wait, %v", i+1, len(files), len(o.list.Waiting(o.Host)), err)
		}
	}
	if n := strings.Count(w.out.String(), "warning: removed"); n != runs-mostWaiting {
		t.Errorf("%d warnings: %s", n, w.out)
	}
	h.CutAfter(0)
	if _, err := w.save(t.Context(), t, runs+1, 8, 0); err != nil {
		t.Fatal(err)
	}
	if o := w.open(t); len(o.list.Copies) != mostWaiting || len(o.list.Waiting(o.Host)) != 0 {
		t.Errorf("%+v", o.list)
	}
}

// TestWaitingOfAnEarlierCluster: after a reset and a new init, a run removes no backup that waited for the former cluster.
func TestWaitingOfAnEarlierCluster(t *testing.T) {
	for name, next := range map[string]writer{
		"a restore of the same CA": {ca: "aaaaaaaaaaaa", cluster: 2},
		"init on the same host":    {ca: "bbbbbbbbbbbb", cluster: 1}, // etcd computes the same ID
	} {
		t.Run(name, func(t *testing.T) {
			_, url, config, _ := overSFTP(t)
			w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
			former, err := w.save(t.Context(), t, 1, 8, 2)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(w.root, filepath.Dir(node.BackupListPath))); err != nil { // as reset
				t.Fatal(err)
			}
			w.ca, w.cluster = next.ca, next.cluster
			stray, err := w.save(t.Context(), t, 1, 8, 1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.save(t.Context(), t, 2, 8, 0); err != nil {
				t.Fatal(err)
			}
			for file, want := range map[string]bool{former: true, stray: false} {
				if _, err := os.Stat(filepath.Join(w.open(t).dir, file)); (err == nil) != want {
					t.Errorf("%s: %v", file, err)
				}
			}
		})
	}
}

// waits returns a host whose etcd does not answer, and on which an old backup waits for the target of the writer.
func (w *writer) waits(t *testing.T) (name string, d Destination) {
	t.Helper()
	h, _ := testhost.ControlPlane(t, nil)
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, public, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile("/etc/kubernetes/pki/ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	w.root = h.Path("/")
	name, err = w.save(t.Context(), t, 1, 8, 2)
	if err != nil {
		t.Fatal(err)
	}
	o := w.open(t)
	old := scheduledPrefix + w.ca + "-20200101T000000Z" + name[strings.Index(name, "-cp-1-"):] // the target was away longer than recent
	if err := os.Rename(filepath.Join(o.dir, name), filepath.Join(o.dir, old)); err != nil {
		t.Fatal(err)
	}
	o.list.Copies[0].Name = old
	file := filepath.Join(t.TempDir(), "target.yaml")
	if err := errors.Join(o.storeList(), os.WriteFile(file, []byte(w.config), 0o600)); err != nil {
		t.Fatal(err)
	}
	return old, Destination{Address: w.address, Config: file}
}

// TestWaitingWithoutANewBackup: what waits is sent also if no new backup can be written, because the disk is full or etcd is down.
func TestWaitingWithoutANewBackup(t *testing.T) {
	_, url, config, dir := overSFTP(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	name, d := w.waits(t)
	if err := w.open(t).SaveElsewhere(t.Context(), d, 8); err == nil {
		t.Error("this host has no etcd that answers")
	} else {
		t.Log(err)
	}
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		t.Error(err)
	}
}

// TestMeanwhile: while a backup is sent, other commands change the host, and the run that sends it changes only what is still its own.
func TestMeanwhile(t *testing.T) {
	for _, order := range []struct {
		name string
		do   func(t *testing.T, w *writer, d Destination)
		want string // a part of the error, besides the one about etcd
		kept bool   // the run records what it has sent
	}{
		{"an upgrade that ends before", func(t *testing.T, w *writer, _ Destination) {
			_, unlock, err := host.OpenLocked(w.root)
			if err != nil {
				t.Error(err)
				return
			}
			unlock()
		}, "", true},
		{"an upgrade that ends later", func(t *testing.T, w *writer, _ Destination) {
			_, unlock, err := host.OpenLocked(w.root)
			if err != nil {
				t.Error(err)
				return
			}
			time.AfterFunc(1500*time.Millisecond, unlock)
		}, "", true},
		{"a second run", func(t *testing.T, w *writer, d Destination) {
			other := w.open(t)
			for _, err := range []error{other.SaveElsewhere(t.Context(), d, 8), other.SendOnce(t.Context(), d)} {
				if err == nil || !strings.Contains(err.Error(), "another command on this host is saving a backup") || fault.Hint(err) == "" {
					t.Error(err)
				}
			}
		}, "", true},
		{"--every off", func(t *testing.T, w *writer, _ Destination) {
			h, unlock, err := host.OpenLocked(w.root)
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			if err := RemoveTimer(t.Context(), h, &workflow.Console{Out: io.Discard}); err != nil {
				t.Error(err)
			}
		}, "", true},
		{"reset", func(t *testing.T, w *writer, _ Destination) {
			if err := os.RemoveAll(filepath.Join(w.root, ledger.StateDir)); err != nil {
				t.Error(err)
			}
		}, errReset.Error(), false},
		{"reset and init", func(t *testing.T, w *writer, _ Destination) {
			if err := os.RemoveAll(filepath.Join(w.root, ledger.StateDir)); err != nil {
				t.Error(err)
			}
			if err := w.open(t).storeList(); err != nil { // another list
				t.Error(err)
			}
		}, errReset.Error(), false},
		{"reset and a restore that is not finished", func(t *testing.T, w *writer, _ Destination) {
			if err := os.RemoveAll(filepath.Join(w.root, ledger.StateDir)); err != nil {
				t.Error(err)
			}
			if err := node.WriteRecord(w.open(t).Host, node.RestoreMarkPath, node.RestoreMark{File: "x.tar"}); err != nil {
				t.Error(err)
			}
		}, "restore on this host is not finished", false},
	} {
		for _, format := range []string{"", ", with a list that has no ID yet"} {
			t.Run(order.name+format, func(t *testing.T) {
				s3 := s3host.Start(t, false)
				proxy := s3.Proxy(t)
				w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, "s3://backups", s3host.Config(proxy.Endpoint))
				name, d := w.waits(t)
				var once sync.Once
				proxy.Set(func(_ http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodPut {
						once.Do(func() { order.do(t, w, d) })
					}
					return false
				})
				o := w.open(t)
				if format != "" {
					o.list.ID = ""
					if err := node.WriteRecord(o.Host, node.BackupListPath, o.list); err != nil {
						t.Fatal(err)
					}
				}
				o.Open = func() (*host.Host, func(), error) { return node.OpenToChange(w.root) }
				before := o.list.ID
				err := o.SaveElsewhere(t.Context(), d, 8)
				if text := fmt.Sprint(err); !strings.Contains(text, order.want) || order.kept && strings.Contains(text, errReset.Error()) {
					t.Errorf("%v, want %q", err, order.want)
				}
				if _, err := os.Stat(filepath.Join(s3.Dir, "backups", name)); err != nil {
					t.Error(err)
				}
				h := testhost.Open(t, w.root)
				list, err := node.ReadBackupList(h)
				if err != nil {
					t.Fatal(err)
				}
				if record, err := node.LastBackup(h); err != nil || (record != nil) != order.kept {
					t.Errorf("%+v, %v", record, err)
				}
				if _, err := os.Stat(filepath.Join(o.dir, name)); (err == nil) == order.kept {
					t.Errorf("the file that waited: %v", err)
				}
				if stored := len(list.Copies) == 1 && list.Copies[0].Stored != nil && list.ID != "" && (before == "" || list.ID == before); stored != order.kept {
					t.Errorf("%+v", list)
				}
				if order.name == "reset" && h.Records().Used() {
					t.Error("the host has records again")
				}
			})
		}
	}
}

// TestChangedTarget: what waits for the target of an earlier timer is sent to the next one if the same keys can read it. Otherwise it stays,
// and is reported.
func TestChangedTarget(t *testing.T) {
	h, url, config, dir := overSFTP(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	name, _ := w.waits(t)
	next := t.TempDir()
	w.address.Path = next
	file := filepath.Join(t.TempDir(), "target.yaml")
	if err := os.WriteFile(file, []byte(h.Config()), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []bool{false, true} {
		w.out.Reset()
		o := w.open(t)
		if !same {
			o.Recipients = []age.Recipient{other.Recipient()}
		}
		if err := o.SaveElsewhere(t.Context(), Destination{Address: w.address, Config: file}, 8); err == nil {
			t.Fatal("this host has no etcd that answers")
		}
		if _, err := os.Stat(filepath.Join(next, name)); (err == nil) != same {
			t.Errorf("sent %t, %v", !same, err)
		}
		if want := map[bool]string{true: "is sent to " + w.address.String(), false: "warning: /var/lib/airlift-backups/waiting/" + name}[same]; !strings.Contains(w.out.String(), want) {
			t.Errorf("%s, want %q", w.out, want)
		}
		d, err := node.Departed(o.Host, nil)
		if err != nil || (d != nil && d.Stranded == 1) == same {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("the earlier target has %v, %v", list, err)
	}
}

// TestRecipientsID: the order and repetitions do not matter, and a passphrase is never the same.
func TestRecipientsID(t *testing.T) {
	var keys []age.Recipient
	for range 4 {
		k, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k.Recipient())
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 6).Draw(t, "a")
		b := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 6).Draw(t, "b")
		of := func(list []int) (r []age.Recipient, set [4]bool) {
			for _, i := range list {
				r, set[i] = append(r, keys[i]), true
			}
			return r, set
		}
		ra, sa := of(a)
		rb, sb := of(b)
		if (recipientsID(ra) == recipientsID(rb)) != (sa == sb) {
			t.Fatalf("%v, %v", a, b)
		}
	})
	passphrase, err := age.NewScryptRecipient("x")
	if err != nil || recipientsID([]age.Recipient{passphrase}) != "" {
		t.Error("a passphrase has an ID")
	}
}

// TestTimerRemovedWhileBackupsWait: they are reported.
func TestTimerRemovedWhileBackupsWait(t *testing.T) {
	_, url, config, _ := overSFTP(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	name, err := w.save(t.Context(), t, 1, 8, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := RemoveTimer(t.Context(), w.open(t).Host, &workflow.Console{Out: w.out}); err != nil || !strings.Contains(w.out.String(), name+" was not sent to "+url) {
		t.Errorf("%s, %v", w.out, err)
	}
}

// TestRestoreByName: a restore that names its backup reads no list, which the target may refuse, or which may be too long.
func TestRestoreByName(t *testing.T) {
	s3 := s3host.Start(t, false)
	proxy := s3.Proxy(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, "s3://backups", s3host.Config(proxy.Endpoint))
	name, err := w.save(t.Context(), t, 1, 8, 0)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Set(func(rw http.ResponseWriter, r *http.Request) bool {
		return r.URL.Query().Has("list-type") && s3host.Answer(http.MethodGet, 403, "AccessDenied")(rw, r)
	})
	w.restores(t, name)
	h, url, config, dir := overSFTP(t)
	w = newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	if name, err = w.save(t.Context(), t, 1, 8, 0); err != nil {
		t.Fatal(err)
	}
	h.ListForever(true)
	w.restores(t, name)
	file := filepath.Join(t.TempDir(), "target.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{target.Within(url, name): "has no backup " + name, url: "lists too much"} {
		if _, err := OpenElsewhere(t.Context(), w.open(t).Host, at, file, nil, []age.Identity{w.key}); err == nil || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v (%s)", at, err, fault.Hint(err))
		}
	}
}

// TestChangedOnTheDisk: a backup whose bytes have changed while it waited does not stop the next ones.
func TestChangedOnTheDisk(t *testing.T) {
	_, url, config, dir := overSFTP(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	for i := range 2 {
		name, err := w.save(t.Context(), t, int64(i+1), 8, 2)
		if err != nil {
			t.Fatal(err)
		}
		if file := filepath.Join(w.open(t).dir, name); i == 0 {
			if err := os.Truncate(file, 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.save(t.Context(), t, 3, 8, 0); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 || strings.Count(w.out.String(), "warning: removed") != 1 || len(w.open(t).list.Copies) != 2 {
		t.Errorf("%v, %v, %s", list, err, w.out)
	}
}

// TestRenamedAtTheTarget: an older backup with the name of a newer one is refused.
func TestRenamedAtTheTarget(t *testing.T) {
	_, url, config, dir := overSFTP(t)
	w := newWriter(t, "cp-1", "aaaaaaaaaaaa", 1, url, config)
	var names []string
	for i := range 2 {
		name, err := w.save(t.Context(), t, int64(i+1), 8, 0)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		w.restores(t, name)
	}
	if err := os.Rename(filepath.Join(dir, names[0]), filepath.Join(dir, names[1])); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "target.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenElsewhere(t.Context(), w.open(t).Host, url, file, []string{"sha256:" + w.ca}, []age.Identity{w.key})
	if err == nil {
		f.Close()
	}
	if fault.ExitCode(err) != fault.Bundle || !strings.Contains(fmt.Sprint(err), names[0]) || fault.Hint(err) == "" {
		t.Errorf("%v (%s)", err, fault.Hint(err))
	}
}

// TestHostileNames: what a terminal or a shell would execute is not a backup, and no revision is higher than etcd's can be.
func TestHostileNames(t *testing.T) {
	for _, node := range []string{"cp-1", "cp.site.example"} {
		if _, ok := readName(scheduledPrefix + "aaaaaaaaaaaa-20260101T000000Z-" + node + "-00000000000000ab-7.tar.age"); !ok {
			t.Errorf("%q is not a node", node)
		}
	}
	for _, name := range []string{"\x1b[2J", "$(reboot)", "a b", "../x", "a/b", "\u202e", "a\nb", "'"} {
		if n, ok := readName(scheduledPrefix + "aaaaaaaaaaaa-20260101T000000Z-" + name + "-00000000000000ab-7.tar.age"); ok {
			t.Errorf("%+v", n)
		}
	}
	if n, ok := readName(scheduledPrefix + "aaaaaaaaaaaa-20260101T000000Z-cp-1-00000000000000ab-99999999999999999999.tar.age"); ok {
		t.Errorf("%+v", n)
	}
}

// TestTimerRemovedInSteps: credentials that an interrupted run has left are removed, too.
func TestTimerRemovedInSteps(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	for _, path := range timerFiles {
		if _, err := h.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveTimer(t.Context(), h, &workflow.Console{Out: io.Discard}); err != nil {
		t.Fatal(err)
	}
	for _, path := range timerFiles {
		if node.FileExists(h, path) {
			t.Errorf("%s is left", path)
		}
	}
}

// TestCredentialsOfEarlierVersions: a new timer removes the credentials that a killed driver of an earlier version has left, also if the ledger
// does not list them.
func TestCredentialsOfEarlierVersions(t *testing.T) {
	for _, listed := range []bool{false, true} {
		h, _ := testhost.ControlPlane(t, nil)
		testhost.NewUnits(h, time.Now())
		h.Installer = "/bin/true"
		if err := h.MkdirAll(filepath.Dir(target.FormerConfigPath), 0o700); err != nil {
			t.Fatal(err)
		}
		write := func() error { return os.WriteFile(h.Path(target.FormerConfigPath), []byte("secret"), 0o600) }
		if listed {
			write = func() error { _, err := h.WriteFile(target.FormerConfigPath, []byte("secret"), 0o600); return err }
		}
		b := New(h, &workflow.Console{Out: io.Discard})
		for _, place := range []Schedule{{Directory: "/mnt"}, {Elsewhere: &Destination{Address: target.Address{Scheme: target.S3, Bucket: "b"}, loaded: &target.Config{}}}} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			place.Every = time.Hour
			if err := b.install(t.Context(), place, "hourly", "etcd snapshot"); err != nil {
				t.Fatal(err)
			}
			if _, inLedger := h.Records().Find(ledger.File, target.FormerConfigPath); inLedger || node.FileExists(h, target.FormerConfigPath) {
				t.Errorf("listed %t, %s: the credentials are left (in the ledger: %t)", listed, place.place(), inLedger)
			}
			if node.FileExists(h, target.ConfigPath) != (place.Elsewhere != nil) {
				t.Errorf("%s: %s", place.place(), target.ConfigPath)
			}
		}
	}
}

// TestSameSecond: a backup never gets the name of another one of this host.
func TestSameSecond(t *testing.T) {
	m := backup.Manifest{Created: time.Now(), Node: "one", EtcdClusterID: "00000000000000ab", Snapshot: etcd.Snapshot{Revision: 7}}
	name := func() string { return scheduledName(scheduledPrefix+"0123456789ab-", m, true) }
	o := &outbox{list: &node.BackupList{Copies: []target.Copy{{Name: name()}}}}
	first := name()
	if err := o.nextSecond(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.Created = time.Now(); name() == first {
		t.Errorf("two backups have the name %s", first)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	o.list.Copies[0].Name = name()
	if err := o.nextSecond(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
