package initcluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/snapshot"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/crash"
	"airlift/scripts/fixtures/rig"
)

// restoreVariable makes the test binary restore the backup in the directory that it names.
const restoreVariable = "AIRLIFT_TEST_RESTORE"

func init() {
	root, ok := os.LookupEnv(restoreVariable)
	if !ok {
		return
	}
	if err := restoreIn(root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// openRestore returns the restore of a backup to a host in the same directory.
func openRestore(root string) (*Restore, error) {
	f, err := snapshot.Open(context.Background(), filepath.Join(root, "cluster.tar"), nil)
	if err != nil {
		return nil, err
	}
	h, err := host.Open(filepath.Join(root, "host"))
	if err != nil {
		return nil, err
	}
	cfg := &config.Config{Facts: config.Facts{Hostname: "one", NodeIP: "10.1.2.3"}}
	cfg.KubernetesVersion = "v1.37.1"
	cfg.CompleteInit()
	return NewRestore(&phases.Plan{Role: phases.FirstControlPlane, Bundle: new(payload.Bundle), Config: cfg}, phases.InitOptions{}, f, h, &workflow.Console{Out: io.Discard}), nil
}

// restoreIn runs the steps of a restore that write its data.
func restoreIn(root string) error {
	r, err := openRestore(root)
	if err != nil {
		return err
	}
	if err := r.checkFresh(context.Background()); err != nil {
		return err
	}
	for _, step := range []string{"restore-certs", "restore-files", "restore-etcd"} {
		if err := workflow.RunPhase(context.Background(), r.Console, r.Steps(), step); err != nil {
			return err
		}
	}
	return nil
}

// snapshotOf writes a snapshot of etcd v3.7 with one key.
func snapshotOf(t *testing.T, path, key string) etcd.Snapshot {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	value, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key), Value: []byte("value")})
	if err != nil {
		t.Fatal(err)
	}
	revision := binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, 7), '_'), 0)
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{"key", "meta", "cluster", "members", "members_removed"} {
			b, err := tx.CreateBucket([]byte(name))
			if err == nil && name == "key" {
				err = b.Put(revision, value)
			}
			if err == nil && name == "cluster" {
				err = b.Put([]byte("clusterVersion"), []byte("3.7.0"))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if err := os.WriteFile(path, append(data, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := etcd.VerifySnapshot(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRestoreWithOlderEtcd: an older etcd would not start with the data of the backup, so a restore does not write it.
func TestRestoreWithOlderEtcd(t *testing.T) {
	root := t.TempDir()
	saved := filepath.Join(root, "snapshot.db")
	s := snapshotOf(t, saved, "/registry/a")
	var archive bytes.Buffer
	if err := backup.Write(&archive, backup.Manifest{Snapshot: s}, saved, []backup.File{{Name: backup.ConfigName}, {Name: backup.PKIDir + "ca.crt"}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "host", "var", "lib"), 0o755), os.WriteFile(filepath.Join(root, "cluster.tar"), archive.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tag     string
		refused bool
	}{{"3.6.8-0", true}, {"3.7.1-0", false}} {
		r, err := openRestore(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.checkFresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.node.Config.Images = map[string]string{"etcd": "registry.k8s.io/etcd:" + c.tag}
		for _, step := range []string{"restore-certs", "restore-etcd"} {
			if err = workflow.RunPhase(t.Context(), r.Console, r.Steps(), step); err != nil {
				break
			}
		}
		if c.refused != (err != nil) || c.refused == node.FileExists(r.Host, config.EtcdDataDir+"/member") {
			t.Errorf("%s: %v", c.tag, err)
		}
		if hint := fault.Hint(err); c.refused && (!strings.Contains(hint, "bundle build --version v1.37.1 --etcd-version 3.7.0-0") || !strings.Contains(hint, "./install reset --force")) {
			t.Errorf("%s: hint %q", c.tag, hint)
		}
	}
}

// TestKilledRestore kills a restore before each call that names or removes a file or directory. Until the
// same restore has finished, other commands are refused; it then has the data of the backup.
func TestKilledRestore(t *testing.T) {
	rig.Needs(t, "ptrace")
	saved := filepath.Join(t.TempDir(), "snapshot.db")
	s := snapshotOf(t, saved, "/registry/a")
	var archive bytes.Buffer
	files := []backup.File{{Name: backup.PKIDir + "ca.key"}, {Name: backup.ConfigName}, {Name: backup.PKIDir + "ca.crt"}}
	if err := backup.Write(&archive, backup.Manifest{Snapshot: s}, saved, files); err != nil {
		t.Fatal(err)
	}
	changing := []string{"rename", "mkdir", "unlink", "link"}
	points := 0
	for killed := true; killed; {
		root := t.TempDir()
		dir := filepath.Join(root, "host", "var", "lib")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(root, "cluster.tar"), archive.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		run := func(at func(crash.Call) bool) bool {
			t.Helper()
			cmd := exec.Command(os.Args[0])
			cmd.Env, cmd.Stderr = append(os.Environ(), restoreVariable+"="+root), os.Stderr
			was, err := crash.Run(cmd, at)
			if err != nil {
				t.Fatalf("call %d: %v", points, err)
			}
			return was
		}
		points++
		killed = run(crash.Numbered(points, func(c crash.Call) bool { return slices.Contains(changing, c.Name) && strings.HasPrefix(c.Path, root) }))
		r, err := openRestore(root)
		if err != nil {
			t.Fatal(err)
		}
		marked, data := node.FileExists(r.Host, node.RestoreMarkPath), node.FileExists(r.Host, config.EtcdDataDir+"/member")
		if refused := node.UnfinishedRestore(r.Host) != nil; refused != marked || data && !marked {
			t.Errorf("call %d: refused %v, marked %v, data %v", points, refused, marked, data)
		}
		run(func(crash.Call) bool { return false })
		mark, err := node.ReadRestoreMark(r.Host)
		if err != nil || mark == nil {
			t.Fatalf("call %d: %+v, %v", points, mark, err)
		}
		if err := r.checkMark(mark); err != nil {
			t.Errorf("call %d: %v", points, err)
		}
		values, err := etcd.Values(etcd.DatabasePath(r.Host.Path(config.EtcdDataDir)), "/registry/a")
		if err != nil || string(values["/registry/a"]) != "value" {
			t.Errorf("call %d: %q, %v", points, values, err)
		}
		if list, err := os.ReadDir(r.Host.Path(config.EtcdDataDir)); err != nil || len(list) != 1 {
			t.Errorf("call %d: left in etcd's directory: %v, %v", points, list, err)
		}
	}
	t.Logf("killed at %d calls", points-1)
}
