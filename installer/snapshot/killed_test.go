package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"airlift/installer/backup"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/crash"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/smallfs"
)

// saveVariable makes the test binary write an encrypted backup below the directory that it names.
const saveVariable = "AIRLIFT_TEST_SAVE_BACKUP"

const plainSecret = "the plain data of etcd"

func init() {
	recipient, root, ok := strings.Cut(os.Getenv(saveVariable), "\n")
	if !ok {
		return
	}
	if err := saveEncrypted(recipient, root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// saveEncrypted does what Save does when it has connected to etcd: the snapshot is on the host, and the
// backup on a drive.
func saveEncrypted(recipient, root string) error {
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return err
	}
	h, err := host.OpenDirectory(filepath.Join(root, "host"))
	if err != nil {
		return err
	}
	snapshot, err := h.CreateScratch()
	if err != nil {
		return err
	}
	defer snapshot.Close()
	plain := strings.Repeat(plainSecret, 10_000)
	if _, err := io.WriteString(snapshot, plain); err != nil {
		return err
	}
	b := New(h, &workflow.Console{Out: io.Discard})
	b.Recipients = []age.Recipient{to}
	_, err = b.write(context.Background(), filepath.Join(root, "drive", "cluster.tar.age"), false, &gathered{manifest: backup.Manifest{Snapshot: etcd.Snapshot{Size: int64(len(plain))}}, snapshot: snapshot.Name(), files: neededFiles})
	return err
}

// TestKilledBackup kills a backup before each of its writes, renames and removals. No plain data is left,
// and the file has its name only when it is complete.
func TestKilledBackup(t *testing.T) {
	rig.Needs(t, "ptrace")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for n, killed := 1, true; killed; n++ {
		root := t.TempDir()
		for _, dir := range []string{"host", "drive"} {
			if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for again := range 2 { // the second run is not killed
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), saveVariable+"="+key.Recipient().String()+"\n"+root)
			cmd.Stderr = os.Stderr
			at := func(crash.Call) bool { return false }
			if again == 0 {
				at = crash.Numbered(n, func(c crash.Call) bool { return strings.HasPrefix(c.Path, root) })
			}
			was, err := crash.Run(cmd, at)
			if err != nil && !strings.Contains(err.Error(), "exit code 1") {
				t.Fatal(err)
			}
			if again == 0 {
				killed = was
			}
			complete := noPlainData(t, root, key)
			if (again == 1 || !was) && !complete {
				t.Errorf("after call %d, run %d: no backup", n, again)
			}
		}
	}
}

// TestBackupIsSynced: a backup and its name are on the disk when the command ends, and before older backups
// are removed.
func TestBackupIsSynced(t *testing.T) {
	rig.Needs(t, "ptrace")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	drive := filepath.Join(root, "drive")
	if err := errors.Join(os.Mkdir(filepath.Join(root, "host"), 0o700), os.Mkdir(drive, 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), saveVariable+"="+key.Recipient().String()+"\n"+root), os.Stderr
	var calls []string
	if _, err := crash.Run(cmd, func(c crash.Call) bool {
		if strings.HasPrefix(c.Path, drive) && slices.Contains([]string{"fsync", "link", "rename", "unlink"}, c.Name) {
			calls = append(calls, c.Name+strings.TrimPrefix(c.Path, drive))
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(calls, " ")
	if want := "fsync/.airlift-cluster.tar.age link/cluster.tar.age unlink/.airlift-cluster.tar.age fsync"; !strings.Contains(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// noPlainData fails if a file below root has plain data. It reports whether the backup exists, which must
// then be complete.
func noPlainData(t *testing.T, root string, key age.Identity) (exists bool) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(plainSecret)) {
			t.Errorf("%s has plain data", path)
		}
		if filepath.Base(path) == "cluster.tar.age" && err == nil {
			exists = true
			_, err = backup.Read(bytes.NewReader(data), io.Discard, key)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return exists
}

// TestBackupOnADriveWithoutModes warns unless the backup is encrypted, and does not replace a file.
func TestBackupOnADriveWithoutModes(t *testing.T) {
	drive := smallfs.WithoutModes(t)
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(snapshot, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string][]age.Recipient{"cluster.tar": nil, "cluster.tar.age": {key.Recipient()}} {
		out := new(bytes.Buffer)
		b := &Backup{Machine: &node.Machine{Console: &workflow.Console{Out: out}}, Recipients: to}
		write := func() error {
			_, err := b.write(t.Context(), filepath.Join(drive, name), false, &gathered{manifest: backup.Manifest{Snapshot: etcd.Snapshot{Size: 1}}, snapshot: snapshot, files: neededFiles})
			return err
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(out.String(), "other users of this host can read "+filepath.Join(drive, name)); warned != (to == nil) {
			t.Errorf("%s: printed %q", name, out)
		}
		if err := write(); fault.ExitCode(err) != fault.Usage || errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: written again: %v", name, err)
		}
	}
}
