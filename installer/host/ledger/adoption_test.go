package ledger_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
)

var adoption = ledger.Adoption{
	Maker: "KubeKey", Kubernetes: "v1.29.15", Time: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC),
	Kubelet: ledger.AdoptedKubelet{Binary: "/usr/local/bin/kubelet", Args: []string{"--v=2"}, Config: "/var/lib/kubelet/config.yaml"},
	Files:   map[string]string{"/usr/local/bin/kubelet": "aa"}, Notes: []string{"odd"},
}

// versionOf is the version in a ledger's file.
func versionOf(t *testing.T, root string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, ledger.Path))
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Version int }
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d.Version
}

// TestAdoption: an adopted node has a ledger that older installers refuse. Entries come and go, and the adoption
// stays until it is ended. Without it, the ledger is one that older installers read.
func TestAdoption(t *testing.T) {
	root := t.TempDir()
	open := func() *host.Host {
		t.Helper()
		h, err := host.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if r := open().Records(); r.Adopted() != nil || r.Used() || r.Adopted().Found("", "") {
		t.Errorf("a bare host is adopted: %+v", r.Adopted())
	}
	h := open()
	if err := h.Records().Adopt(adoption); err != nil {
		t.Fatal(err)
	}
	adopted, err := os.ReadFile(h.Path(ledger.Path))
	if err != nil || versionOf(t, root) != 3 {
		t.Errorf("version %d: %v", versionOf(t, root), err)
	}
	for _, r := range []*ledger.Records{h.Records(), open().Records()} {
		if got := r.Adopted(); !r.Used() || r.HasEntries() || got == nil || !reflect.DeepEqual(*got, adoption) {
			t.Errorf("the ledger has %+v", got)
		}
	}
	for _, c := range []struct {
		path, sum string
		want      bool
	}{{"/usr/local/bin/kubelet", "aa", true}, {"/usr/local/bin/kubelet", "bb", false}, {"/other", "aa", false}, {"/other", "", false}} {
		if got := open().Records().Adopted().Found(c.path, c.sum); got != c.want {
			t.Errorf("%s %q: %t", c.path, c.sum, got)
		}
	}

	h = open()
	h.Records().BeginRun(ledger.Run{Command: "upgrade node", Began: time.Now()})
	if _, err := h.WriteFile("/etc/airlift-example", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if list, err := open().Records().Runs(); err != nil || len(list) != 1 || versionOf(t, root) != 3 {
		t.Errorf("runs %+v, version %d: %v", list, versionOf(t, root), err)
	}
	if kept, err := uninstall.RemoveInstalled(t.Context(), h); err != nil || len(kept) > 0 {
		t.Errorf("%q, %v", kept, err)
	}
	// The state directory is as it was adopted, byte by byte.
	left, err := os.ReadDir(h.Path(ledger.StateDir))
	if now, _ := os.ReadFile(h.Path(ledger.Path)); err != nil || len(left) != 1 || string(now) != string(adopted) {
		t.Errorf("left %v (%v):\n%s", left, err, now)
	}

	refused, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := refused.WriteFile("/etc/airlift-example", []byte("x"), 0o644); err != nil { // leaves an unsaved change
		t.Fatal(err)
	}
	refused.Records().EndAdoption(nil)
	unlock()
	if r := open().Records(); r.Adopted() == nil {
		t.Error("a reset that was refused ended the adoption")
	}

	h = open()
	h.Records().EndAdoption(nil)
	if r := open().Records(); r.Adopted() == nil {
		t.Error("the end of the adoption was written before a change")
	}
	if err := h.Records().BeginReset(ledger.Identity{Node: "w1"}); err != nil {
		t.Fatal(err)
	}
	if err := open().Records().BeginReset(ledger.Identity{}); err != nil { // a second reset finds a part of the node
		t.Fatal(err)
	}
	if was := open().Records().Was(); was == nil || was.Node != "w1" {
		t.Errorf("the reset removes %+v", was)
	}
	if r := open().Records(); r.Adopted() != nil || !r.ResetBegan() || versionOf(t, root) != 2 {
		t.Errorf("version %d, adopted %+v", versionOf(t, root), r.Adopted())
	}
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.Path(ledger.StateDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", ledger.StateDir, err)
	}
}

// TestBeginDisown: no entry stays that reset would restore, and a removal of the node takes precedence.
func TestBeginDisown(t *testing.T) {
	root := t.TempDir()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	_, written := h.WriteFile("/etc/airlift-example", []byte("x"), 0o644)
	if err := errors.Join(h.Records().Adopt(adoption), written, h.Records().BeginDisown()); err != nil {
		t.Fatal(err)
	}
	if h, err = host.Open(root); err != nil {
		t.Fatal(err)
	}
	r := h.Records()
	if _, found := r.Find(ledger.File, "/etc/airlift-example"); found || r.Adopted() == nil || !r.DisownBegan() || r.ResetBegan() {
		t.Errorf("entry %t, adopted %+v", found, r.Adopted())
	}
	uninstall.AssumeTraces(h, uninstall.Traces{CertificatesDir: "/etc/kubernetes/pki"})
	if r.DisownBegan() || !r.AssumedTraces() {
		t.Error("disown would have to finish, and reset too")
	}
}

// A version that does not fit the content is damage, and a newer version is another installer's.
func TestVersionsOfTheLedger(t *testing.T) {
	for text, want := range map[string]string{
		`{"version": 1, "entries": []}`:                                       "",
		`{"version": 2, "entries": []}`:                                       "",
		`{"version": 3, "entries": [], "adopted": {"maker": "kubeadm"}}`:      "",
		`{"version": 3, "entries": []}`:                                       "damaged",
		`{"version": 2, "entries": [], "adopted": {"maker": "kubeadm"}}`:      "damaged",
		`{"version": 4, "entries": [], "adopted": {"maker": "kubeadm"}}`:      "its version is 4, this installer supports up to 3",
		`{"version": 4, "entries": {}, "more": 1}`:                            "its version is 4",
		`{"version": 3, "entries": [], "adopted": {"maker": "kubeadm"}} more`: "damaged",
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, ledger.StateDir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, ledger.Path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ledger.Read(filesystem.Root(root))
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
