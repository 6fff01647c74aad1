package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/backup"
	"airlift/installer/etcd"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

const testPrefix = scheduledPrefix + "aaaaaaaaaaaa-"

// neededFiles are the files that each backup has.
var neededFiles = []backup.File{{Name: backup.ConfigName}, {Name: backup.PKIDir + "ca.crt"}}

// A backupDir is a directory of scheduled backups.
type backupDir struct {
	t   *testing.T
	dir string
	b   *Backup
}

func newBackupDir(t *testing.T) backupDir {
	return backupDir{t, t.TempDir(), &Backup{Machine: &node.Machine{Console: &workflow.Console{Out: new(bytes.Buffer)}}}}
}

// save writes a file as a scheduled backup does, with a clock that may be wrong.
func (d backupDir) save(node string, clock time.Time, cluster uint64, revision int64, encrypted bool) string {
	d.t.Helper()
	m := backup.Manifest{Created: clock, Node: node, EtcdClusterID: fmt.Sprintf("%016x", cluster), Snapshot: etcd.Snapshot{Revision: revision}}
	name := scheduledName(testPrefix, m, encrypted)
	d.put(name, d.archive(m))
	return name
}

func (d backupDir) archive(m backup.Manifest) []byte {
	d.t.Helper()
	snapshot := filepath.Join(d.t.TempDir(), "snapshot.db")
	if err := os.WriteFile(snapshot, []byte("data"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	var archive bytes.Buffer
	m.Snapshot.Size = int64(len("data"))
	if err := backup.Write(&archive, m, snapshot, neededFiles); err != nil {
		d.t.Fatal(err)
	}
	return archive.Bytes()
}

func (d backupDir) put(name string, data []byte) {
	d.t.Helper()
	if strings.HasSuffix(name, ".age") {
		data = []byte("age-encryption.org/v1\n")
	}
	if err := os.WriteFile(filepath.Join(d.dir, name), data, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d backupDir) prune(written string, keep int) {
	d.t.Helper()
	if err := d.b.prune(d.dir, testPrefix, written, keep); err != nil {
		d.t.Fatal(err)
	}
}

func (d backupDir) names() (names []string) {
	d.t.Helper()
	list, err := os.ReadDir(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

var right = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// TestPruneAfterAWrongClock: the clock was wrong for a while. The backups with the last changes stay.
func TestPruneAfterAWrongClock(t *testing.T) {
	for name, wrong := range map[string]time.Time{"in the future": right.AddDate(73, 0, 0), "in the past": time.Unix(0, 0)} {
		for _, encrypted := range []bool{false, true} {
			d := newBackupDir(t)
			var saved []string
			for i := range 9 {
				clock := right.Add(time.Duration(i) * time.Hour)
				if i >= 3 && i < 6 {
					clock = wrong.Add(time.Duration(i) * time.Hour)
				}
				saved = append(saved, d.save("one", clock, 1, int64(100+10*i), encrypted))
				d.prune(saved[i], 3)
				want := slices.Sorted(slices.Values(saved[max(0, i-2):]))
				if got := d.names(); !slices.Equal(got, want) {
					t.Fatalf("%s, encrypted %v, after backup %d: left %v, want %v", name, encrypted, i, got, want)
				}
			}
		}
	}
}

// TestPruneKeepsOthers: only backups of the same etcd cluster with this prefix are removed.
func TestPruneKeepsOthers(t *testing.T) {
	d := newBackupDir(t)
	keep := []string{
		d.save("one", right, 1, 100_000, false), // an earlier cluster with the same CA: after a restore, or another init
		testPrefix + "copy.tar", testPrefix + "20250101T000000Z.txt", "20250101T000000Z.tar",
		scheduledPrefix + "bbbbbbbbbbbb-20250101T000000Z.tar", // another CA
		testPrefix + "20240101T000000Z.tar.age",               // of an older installer: nobody knows which cluster
		testPrefix + "20240101T000000Z-one-0000000000000002-1.tar",
	}
	for _, name := range keep[1:6] {
		d.put(name, d.archive(backup.Manifest{EtcdClusterID: "0000000000000002"}))
	}
	d.put(keep[6], []byte("text")) // the name alone is not enough
	d.put(testPrefix+"20230101T000000Z.tar", d.archive(backup.Manifest{EtcdClusterID: "0000000000000002", Snapshot: etcd.Snapshot{Revision: 5}}))
	d.save("two", right, 2, 6, false)
	d.save("two", right, 2, 7, true)
	keep = append(keep, d.save("one", right, 2, 8, true), d.save("one", right, 2, 9, true))
	d.prune(keep[len(keep)-1], 2)
	slices.Sort(keep)
	if got := d.names(); !slices.Equal(got, keep) {
		t.Errorf("left %v\nwant %v", got, keep)
	}
}

// TestPruneOnASharedDrive: several nodes write to one directory, in any order and with any clocks.
// A backup with the last revision is always left, and never more than each node's own in addition
// to the backups to keep.
func TestPruneOnASharedDrive(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		d, keep := newBackupDir(t), 1+random.IntN(3)
		nodes := []string{"one", "two-b", "three.example"}
		waiting := map[string]string{} // written, not pruned yet
		revision := int64(0)
		for range 20 {
			node := nodes[random.IntN(len(nodes))]
			if waiting[node] == "" {
				revision += int64(random.IntN(2)) // two nodes may save the same revision
				waiting[node] = d.save(node, time.Unix(random.Int64N(1<<32), 0), 1, revision, random.IntN(2) == 0)
				continue
			}
			d.prune(waiting[node], keep)
			waiting[node] = ""
			names := d.names()
			if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, fmt.Sprintf("-%d.tar", revision)) }) {
				t.Fatalf("seed %d: no backup of revision %d is left: %v", seed, revision, names)
			}
			if len(names) > keep+len(nodes) {
				t.Fatalf("seed %d: %d backups are left, %d are to be kept: %v", seed, len(names), keep, names)
			}
		}
	}
}

// TestUnfinishedBackupsOfKilledRuns: a killed run leaves a part of a backup, with a name that no later run
// has. Without its removal, they would fill the drive.
func TestUnfinishedBackupsOfKilledRuns(t *testing.T) {
	d := newBackupDir(t)
	name := func(node string) string {
		return scheduledName(testPrefix, backup.Manifest{Created: right, Node: node, EtcdClusterID: "0000000000000001"}, true)
	}
	keep := []string{".airlift-" + name("two"), ".airlift-" + name("one-two"), ".airlift-cluster.tar", ".airlift-" + scheduledPrefix + "bbbbbbbbbbbb-x.tar", name("one")}
	for _, n := range append(keep, ".airlift-"+name("one")) {
		d.put(n, nil)
	}
	for range 2 {
		if err := removeUnfinished(d.dir, testPrefix, "one"); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(keep)
	if got := d.names(); !slices.Equal(got, keep) {
		t.Errorf("left %q\nwant %q", got, keep)
	}
	// A long name is shortened, but not to the name of another node.
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 60)
	d.put(".airlift-"+name(long), nil)
	d.put(".airlift-"+name(long+"d"), nil)
	if err := removeUnfinished(d.dir, testPrefix, long); err != nil {
		t.Fatal(err)
	}
	if other := ".airlift-" + name(long+"d"); !slices.Contains(d.names(), other) {
		t.Errorf("the part of another node was removed: %s", other)
	}
	if slices.Contains(d.names(), ".airlift-"+name(long)) {
		t.Error("the part of this node was kept")
	}
}

// TestTimerRuns: after any sequence of backups by the timer and by commands, the record has the last one of all, and the last run of the timer.
func TestTimerRuns(t *testing.T) {
	root := t.TempDir()
	h := testhost.Open(t, root)
	if err := h.Records().Record(ledger.Entry{Kind: ledger.Owned, Name: "/etc/kubernetes"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile(backupTimer.UnitPath(), []byte("[Unit]\nX-Airlift-Settings=etcd snapshot /mnt --every 6h0m0s --keep 8 --time-zone UTC\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := New(h, &workflow.Console{Out: io.Discard})
	type run struct{ Timer, Fails, Elsewhere bool }
	var ran bool
	var want node.TimerRun
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, c := range rapid.SliceOfN(rapid.Make[run](), 60, 60).Example(1) { // each is a write that is synced
		at := at.Add(time.Duration(i) * time.Minute)
		place, failed := "/mnt", error(nil)
		if c.Elsewhere {
			place = "/of/a/timer/that/is/not/installed/yet"
		}
		if c.Fails {
			failed = fmt.Errorf("failed at %s", at)
		}
		if err := b.record(node.BackupRecord{Time: at, Path: place}, place, c.Timer, failed); err != nil {
			t.Fatal(err)
		}
		switch {
		case c.Timer && !c.Fails:
			ran, want = true, node.TimerRun{Saved: &at}
		case c.Timer && !c.Elsewhere:
			ran, want.Error = true, failed.Error()
		}
		is, err := node.LastBackup(h)
		if err != nil || !is.Time.Equal(at) || (is.Error != "") != c.Fails || (is.Timer != nil) != ran || ran && !reflect.DeepEqual(*is.Timer, want) {
			t.Fatalf("%d, %+v: %+v (timer %+v), want %+v, %v", i, c, is, is.Timer, want, err)
		}
	}
}
