package snapshot

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testhost"
)

// answering gives a host with a real etcd an API server, which has the configuration of the cluster and nothing else.
func answering(t *testing.T, root string) {
	t.Helper()
	cfg := testhost.Config(nil)
	objects, err := testcluster.UploadConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	maps := map[string]*corev1.ConfigMap{}
	for _, o := range objects {
		if m, ok := o.(*corev1.ConfigMap); ok {
			m.APIVersion, m.Kind = "v1", "ConfigMap"
			maps["/api/v1/namespaces/kube-system/configmaps/"+m.Name] = m
		}
	}
	pki := filepath.Join(root, config.CertificatesDir)
	cert, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver.crt"), filepath.Join(pki, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if m := maps[r.URL.Path]; m != nil {
			_ = json.NewEncoder(w).Encode(m)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		missing := apierrors.NewNotFound(schema.GroupResource{}, path.Base(r.URL.Path)).Status()
		missing.APIVersion, missing.Kind = "v1", "Status"
		_ = json.NewEncoder(w).Encode(missing)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["a"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthority: filepath.Join(pki, "ca.crt")}
	kubeconfig.Contexts["a"], kubeconfig.CurrentContext = &clientcmdapi.Context{Cluster: "a"}, "a"
	if err := clientcmd.WriteToFile(*kubeconfig, filepath.Join(root, node.AdminConf)); err != nil {
		t.Fatal(err)
	}
}

// A pause is a recipient that waits when a backup begins to be written, as a file system without its server does.
type pause struct {
	age.Recipient
	reached, resume chan struct{}
}

func (p pause) Wrap(key []byte) ([]*age.Stanza, error) {
	p.reached <- struct{}{}
	<-p.resume
	return p.Recipient.Wrap(key)
}

// TestHungDirectory: while a backup is written to a directory or a file that hangs, other commands can lock the host, and a second run of the
// timer does not write to the same directory. The result is recorded unless the host has another cluster by then.
func TestHungDirectory(t *testing.T) {
	root := t.TempDir()
	testhost.RunEtcd(t, root, "x")
	answering(t, root)
	h := testhost.Open(t, root)
	if err := h.Records().Record(ledger.Entry{Kind: ledger.Owned, Name: "/etc/kubernetes"}); err != nil {
		t.Fatal(err)
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	open := func() (*host.Host, func(), error) { return node.OpenToChange(root) }
	ca := filepath.Join(root, config.CertificatesDir, "ca.crt")
	own := testhost.Read(t, ca)
	another, _ := newCA(t, "ECDSA-P256")
	dir := filepath.Join(t.TempDir(), "drive")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(timer, replaced bool) (*node.BackupRecord, error) {
		t.Helper()
		if err := os.WriteFile(ca, []byte(own), 0o600); err != nil {
			t.Fatal(err)
		}
		b, p := New(h, &workflow.Console{Out: new(bytes.Buffer)}), pause{key.Recipient(), make(chan struct{}), make(chan struct{})}
		b.Recipients, b.Open = []age.Recipient{p}, open
		done := make(chan error, 1)
		go func() {
			if timer {
				done <- b.SaveInDirectory(t.Context(), dir, "", 8)
			} else {
				done <- b.Save(t.Context(), filepath.Join(dir, "one.tar"), true)
			}
		}()
		select {
		case <-p.reached:
		case err := <-done:
			t.Fatal(err)
		}
		_, unlock, err := open()
		if err != nil {
			t.Fatalf("the host is locked while the backup is written: %v", err)
		}
		second := New(h, &workflow.Console{Out: io.Discard})
		second.Open = open
		if err := second.SaveInDirectory(t.Context(), dir, "", 8); timer && (err == nil || !strings.Contains(err.Error(), "another command on this host is saving a backup")) {
			t.Errorf("a second run: %v", err)
		}
		if replaced {
			if err := os.WriteFile(ca, another, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(1500*time.Millisecond, unlock) // it ends after the backup
		close(p.resume)
		err = <-done
		record, rerr := node.LastBackup(testhost.Open(t, root))
		if rerr != nil {
			t.Fatal(rerr)
		}
		return record, err
	}
	byTimer, err := run(true, false)
	if err != nil || byTimer == nil || byTimer.Error != "" || byTimer.Timer == nil || byTimer.Timer.Saved == nil || !byTimer.Timer.Saved.Equal(byTimer.Time) {
		t.Fatalf("%+v, %v", byTimer, err)
	}
	byCommand, err := run(false, false)
	if err != nil || byCommand.Path != filepath.Join(dir, "one.tar") || byCommand.Timer == nil || !byCommand.Timer.Saved.Equal(byTimer.Time) {
		t.Errorf("%+v, %v", byCommand, err)
	}
	for _, timer := range []bool{true, false} {
		record, err := run(timer, true)
		if !errors.Is(err, errOtherCluster) || fault.Hint(err) == "" || record.Path != byCommand.Path || !record.Time.Equal(byCommand.Time) {
			t.Errorf("the host has another cluster: %+v, %v", record, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
}
