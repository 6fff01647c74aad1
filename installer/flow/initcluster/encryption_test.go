package initcluster

import (
	"bytes"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/phases"
	"airlift/installer/secrets"
	"airlift/internal/fault"
)

// TestKeyOfSecrets: the key is created once, and stays. Without it, init does not create another one for an etcd with data, and a
// damaged file is not replaced.
func TestKeyOfSecrets(t *testing.T) {
	r := restoring(t)
	r.node.Config.Etcd.Local.DataDir = config.EtcdDataDir
	if New(r.node.Plan, phases.InitOptions{}, r.Host, r.Console).encryption.used() {
		t.Fatal("it is used without a flag")
	}
	if err := secrets.Use(&r.node.Config.Cluster); err != nil {
		t.Fatal(err)
	}
	e := r.init.encryption
	first, err := e.desired(t.Context())
	if err != nil || len(first.Files) != 1 || first.Files[0].Path != secrets.File || first.Files[0].Mode != 0o600 {
		t.Fatalf("%v: %+v", err, first.Files)
	}
	again, err := e.desired(t.Context())
	if err != nil || !bytes.Equal(again.Files[0].Data, first.Files[0].Data) {
		t.Errorf("%v: computed again, it is another key", err)
	}
	if err := r.Write(first.Files...); err != nil {
		t.Fatal(err)
	}
	later := New(r.node.Plan, phases.InitOptions{}, r.Host, r.Console).encryption
	if kept, err := later.desired(t.Context()); err != nil || !bytes.Equal(kept.Files[0].Data, first.Files[0].Data) {
		t.Errorf("%v: the next run has another key", err)
	}
	put(t, r, secrets.File, "damaged")
	if _, err := later.desired(t.Context()); err == nil || fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == "" {
		t.Errorf("damaged: %v", err)
	}
	other := restoring(t)
	other.node.Config.Etcd.Local.DataDir = config.EtcdDataDir
	put(t, other, config.EtcdDataDir+"/member/snap/db", "x")
	if _, err := other.init.encryption.desired(t.Context()); err == nil || !strings.Contains(err.Error(), "may be encrypted with its keys") {
		t.Errorf("lost, and etcd has data: %v", err)
	}
}
