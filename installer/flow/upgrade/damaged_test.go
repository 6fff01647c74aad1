package upgrade

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/revision"
	"airlift/internal/fault"
)

// damages are what a power failure, a full disk or an editor leaves of a file.
var damages = map[string]func(good string) string{
	"truncated":        func(good string) string { return good[:len(good)/2] },
	"empty":            func(string) string { return "" },
	"zeros":            func(good string) string { return strings.Repeat("\x00", len(good)) },
	"zeros at the end": func(good string) string { return good[:len(good)/2] + strings.Repeat("\x00", len(good)/2) },
	"trailing garbage": func(good string) string { return good + "}\n" },
	"null":             func(string) string { return "null\n" },
	"no fields":        func(string) string { return "{}\n" },
	"a list":           func(string) string { return "[1]\n" },
}

// TestDamagedStateFiles: a damaged state file is an error with its path, and with a command that helps.
func TestDamagedStateFiles(t *testing.T) {
	upgrade := func(h *host.Host) error { _, err := revision.Read(h, revision.Upgrade); return err }
	for _, c := range []struct {
		path, good, hint string
		read             func(h *host.Host) error
		mayBeEmpty       bool // a file without fields is not an error
	}{
		{host.RevisionState, `{"version": 1, "from": "v1.37.1", "to": "v1.37.2"}`, "mv " + host.RevisionState + " " + host.RevisionState + ".damaged", upgrade, false},
		{ledger.Path, `{"version": 2, "entries": [{"kind": "dir", "name": "/x"}]}`, "./install reset --without-ledger", func(h *host.Host) error { _, err := host.Open(h.Path("/")); return err }, false},
		{node.RestoreMarkPath, `{"backup": "aa", "node": "a", "peerURL": "https://192.0.2.1:2380", "token": "b"}`, "./install reset", func(h *host.Host) error {
			_, err := node.ReadRestoreMark(h)
			return err
		}, true},
		{node.BackupRecordPath, `{"path": "/a.tar"}`, "./install etcd snapshot", func(h *host.Host) error { _, err := node.LastBackup(h); return err }, true},
		{ledger.StateDir + "/runs.json", `[{"command": "init"}]`, "replaces it", func(h *host.Host) error { _, err := h.Records().Runs(); return err }, true},
	} {
		h, unlock, err := host.OpenLocked(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		write := func(text string) {
			t.Helper()
			if err := errors.Join(os.MkdirAll(filepath.Dir(h.Path(c.path)), 0o700), os.WriteFile(h.Path(c.path), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		write(c.good)
		if err := c.read(h); err != nil {
			t.Errorf("%s: %v", c.path, err)
		}
		for name, damage := range damages {
			if c.mayBeEmpty && name == "no fields" || strings.HasPrefix(c.good, "[") && (name == "a list" || name == "no fields") {
				continue
			}
			write(damage(c.good))
			err := c.read(h)
			if err == nil || fault.ExitCode(err) != fault.Failure || !strings.Contains(err.Error(), "reading "+c.path+": the file is damaged: ") || !strings.Contains(fault.Hint(err), c.hint) {
				t.Errorf("%s, %s: %v, hint %q", c.path, name, err, fault.Hint(err))
			}
		}
	}
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := h.Upgrades().WriteState([]byte(`{"version": 99, "from": "v1.37.1", "to": "v1.37.2"}`)); err != nil {
		t.Fatal(err)
	}
	if err := upgrade(h); err == nil || !strings.Contains(err.Error(), "its version is 99") || !strings.Contains(fault.Hint(err), "newer") {
		t.Errorf("%v, %q", err, fault.Hint(err))
	}
	// Without the state, an upgrade to the same version uses the previous files that are kept.
	if err := upgradeFiles(h, "v1", "v2", "two"); err == nil {
		t.Error("the state of a newer version is replaced")
	}
	if err := os.Rename(h.Path(host.RevisionState), h.Path(host.RevisionState+".damaged")); err != nil {
		t.Fatal(err)
	}
	if err := upgradeFiles(h, "v1", "v2", "two"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(h.Path(host.RevisionState), h.Path(host.RevisionState+".damaged")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(upgradeFiles(h, "v1", "v2", "again"), undoFiles(h)); err != nil || contents(h) != "- - -" {
		t.Errorf("%v: %s", err, contents(h))
	}
}

// TestDamagedRotation: a damaged certificate of a rotation of the CAs is named.
func TestDamagedRotation(t *testing.T) {
	root := t.TempDir()
	file := path.Join(config.CertificatesDir, pki.NextCAs, "ca.crt")
	for name, damage := range damages {
		text := damage("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
		if err := errors.Join(os.MkdirAll(filepath.Dir(root+file), 0o700), os.WriteFile(root+file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		_, _, err := pki.RotationCAs(&config.Config{Cluster: config.Cluster{CertificatesDir: config.CertificatesDir}}, os.DirFS(root), "ca")
		if err == nil || !strings.Contains(err.Error(), "reading "+file+": the file is damaged") || fault.Hint(err) == "" {
			t.Errorf("%s: %v, hint %q", name, err, fault.Hint(err))
		}
	}
}

// TestStateFilesOfANewerInstaller: a file is of a newer version also if its fields have other types. It is not
// damaged, and moving it away would lose it.
func TestStateFilesOfANewerInstaller(t *testing.T) {
	for path, texts := range map[string][]string{
		host.RevisionState: {`{"version": 99}`, `{"version": 99, "from": {"kubernetes": "v1.40.0"}, "objects": "none"}`, `{"from": 1, "version": 99}`},
		ledger.Path:        {`{"version": 99}`, `{"version": 99, "entries": {"dir": ["/x"]}}`, `{"entries": [{"kind": 1}], "version": 99}`},
	} {
		for _, text := range texts {
			root := t.TempDir()
			file := filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
			h, err := host.Open(root)
			if err == nil {
				_, err = revision.Read(h, revision.Upgrade)
			}
			if err == nil || !strings.Contains(err.Error(), "its version is 99") || !strings.Contains(fault.Hint(err), "or a newer one") {
				t.Errorf("%s: %s: %v (hint %q)", path, text, err, fault.Hint(err))
			}
		}
	}
}
