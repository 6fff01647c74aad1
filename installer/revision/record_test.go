package revision

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/host"
	"airlift/internal/fault"
)

// formerHost returns a host whose records version 1 wrote: a finished upgrade, and an unfinished reconfiguration.
func formerHost(t *testing.T) *host.Host {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/version1")); err != nil {
		t.Fatal(err)
	}
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	return h
}

func both(t *testing.T, h *host.Host) (upgraded, reconfigured *Record) {
	t.Helper()
	upgraded, err := Read(h, Upgrade)
	if err != nil {
		t.Fatal(err)
	}
	if reconfigured, err = Read(h, Reconfigure); err != nil {
		t.Fatal(err)
	}
	return upgraded, reconfigured
}

// TestRecordsOfVersion1: records that a former build wrote are read, and the first command that writes moves them to one file, whatever
// it writes. What was kept for undo stays where it is.
func TestRecordsOfVersion1(t *testing.T) {
	for name, write := range map[string]func(h *host.Host, upgraded, reconfigured *Record) error{
		"the upgrade":         func(h *host.Host, u, _ *Record) error { return u.Write(h) },
		"the reconfiguration": func(h *host.Host, _, r *Record) error { return r.Write(h) },
	} {
		h := formerHost(t)
		u, r := both(t, h)
		if u == nil || u.From != "v1.36.3" || u.EtcdStarted != "registry.k8s.io/etcd:3.6.5-0" || len(u.Objects) != 1 || len(u.ImageNames) != 1 || !u.Finished {
			t.Fatalf("%s: the upgrade is %+v", name, u)
		}
		if r == nil || r.Number != 3 || r.Began.Number != 2 || !r.IsPending("kube-apiserver") || r.Followers != ControlPlanes || len(r.TakenOver) != 1 || len(r.Certificates) != 1 || r.Finished {
			t.Fatalf("%s: the reconfiguration is %+v", name, r)
		}
		if err := Unfinished(h); err == nil || !strings.Contains(fault.Hint(err), "./install reconfigure undo") {
			t.Errorf("%s: %v, hint %q", name, err, fault.Hint(err))
		}
		if err := Unfinished(h, Reconfigure); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		before, err := json.Marshal([]*Record{u, r})
		if err != nil {
			t.Fatal(err)
		}
		if err := write(h, u, r); err != nil {
			t.Fatal(err)
		}
		u, r = both(t, h)
		if after, err := json.Marshal([]*Record{u, r}); err != nil || string(after) != string(before) {
			t.Errorf("%s: %v\n%s\n%s", name, err, before, after)
		}
		if _, err := os.Stat(h.Path(host.ReconfigureState)); !os.IsNotExist(err) {
			t.Errorf("%s: the former file is left: %v", name, err)
		}
		var file struct{ Version int }
		if data, err := os.ReadFile(h.Path(host.RevisionState)); err != nil || json.Unmarshal(data, &file) != nil || file.Version != 2 { // which a former build refuses
			t.Errorf("%s: version %d, %v", name, file.Version, err)
		}
		for path, kept := range map[string]host.Kept{"/etc/kubernetes/manifests/etcd.yaml": u.Kept(h), "/etc/kubernetes/audit/policy.yaml": r.Kept(h)} {
			if paths, err := kept.Paths(); err != nil || len(paths) != 1 || paths[0] != path {
				t.Errorf("%s: kept %q, %v", name, paths, err)
			}
		}
	}
}

// TestFormerFileStays: the former file of a reconfiguration counts only without the new one. So an interruption before its removal, or
// an error, brings nothing back.
func TestFormerFileStays(t *testing.T) {
	h := formerHost(t)
	former, err := os.ReadFile(h.Path(host.ReconfigureState))
	if err != nil {
		t.Fatal(err)
	}
	_, r := both(t, h)
	r.Finished = true
	if err := r.Write(h); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.Path(host.ReconfigureState), former, 0o600); err != nil { // as before its removal
		t.Fatal(err)
	}
	if _, r = both(t, h); !r.Finished {
		t.Error("the former record of the reconfiguration is back")
	}
	if err := Remove(h, Reconfigure); err != nil {
		t.Fatal(err)
	}
	obstacle := filepath.Join(h.Path(host.ReconfigureState), "not empty")
	if err := os.MkdirAll(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Remove(h, Upgrade); err == nil {
		t.Error("the former file cannot be removed, and there is no error")
	}
	if u, _ := both(t, h); u == nil {
		t.Error("the new file is removed, and the former one is left")
	}
	if err := os.RemoveAll(h.Path(host.ReconfigureState)); err != nil {
		t.Fatal(err)
	}
	if err := Remove(h, Upgrade); err != nil {
		t.Fatal(err)
	}
	if u, r := both(t, h); u != nil || r != nil {
		t.Errorf("after both are removed: %+v, %+v", u, r)
	}
	err = filepath.WalkDir(h.Path("/var/lib/airlift"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "ledger.json" {
			t.Errorf("left: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRecordsAreRefused: a record that says nothing, or that a newer installer wrote, is an error with the file's name.
func TestRecordsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"version": 3, "records": "none"}`:                                                                "its version is 3",
		`{"version": 2, "records": [null]}`:                                                                "it has no version",
		`{"version": 2, "records": [{"kind": "upgrade", "from": "v1.37.1"}]}`:                              "it has no version",
		`{"version": 2, "records": [{"kind": "reconfigure", "from": "v1.37.1", "to": "v1.37.1"}]}`:         "it has no configuration",
		`{"version": 2, "records": [{"kind": "endpoint", "from": "v1.37.1", "to": "v1.37.1"}]}`:            "unknown kind",
		`{"version": 1, "from": "v1.37.1", "to": "v1.37.1", "change": "ab", "kind": "reconfigure"}`:        "it has no configuration",
		`{"version": 2, "records": [{"kind": "upgrade", "from": "v1", "to": "v2"}, {"kind": "upgrade"}]} `: "it has no version",
	} {
		h := formerHost(t)
		if err := os.WriteFile(h.Path(host.RevisionState), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(h, Upgrade); err == nil || !strings.Contains(err.Error(), "reading "+host.RevisionState) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
