package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"airlift/installer/config"
)

// This test needs no upstream binaries. real_test.go proves the same with a
// real API server.
func TestSecondRunsWriteNothing(t *testing.T) {
	dir := t.TempDir()
	cfg := &config.Config{Cluster: config.Cluster{CertificatesDir: dir}}
	if err := os.MkdirAll(filepath.Join(dir, "etcd"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range sharedCerts(cfg) {
		if strings.HasSuffix(path, "etcd/ca.key") {
			continue // as with an external CA
		}
		if err := os.WriteFile(path, []byte("content of "+path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key := NewCertificateKey()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "1"}}
	client, writes := fakeClient(node)
	ctx := context.Background()
	for name, do := range map[string]func() (bool, error){
		"apply": func() (bool, error) {
			changed, err := client.Apply(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "x"}, Data: map[string]string{"k": "v"}},
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "x"}, Data: map[string][]byte{"k": []byte("v")}})
			return len(changed) > 0, err
		},
		"tokens": func() (bool, error) {
			changed, err := client.EnsureTokens(ctx, []config.BootstrapToken{testcluster.JoinToken("fakeaa.0123456789abcdef")})
			return len(changed) > 0, err
		},
		"certs":  func() (bool, error) { return client.UploadCerts(ctx, os.DirFS("/"), cfg, key) },
		"mark":   func() (bool, error) { return client.NodeObjects().MarkControlPlane(ctx, "n1", nil) },
		"socket": func() (bool, error) { return client.NodeObjects().AnnotateCRISocket(ctx, "n1", "unix:///x.sock") },
	} {
		t.Run(name, func(t *testing.T) {
			changed := testcluster.Must(do())(t)
			if w := writes(); !changed || len(w) == 0 {
				t.Errorf("first run: changed=%t, %q", changed, w)
			}
			changed = testcluster.Must(do())(t)
			if w := writes(); changed || len(w) > 0 {
				t.Errorf("second run: changed=%t, %q", changed, w)
			}
		})
	}
	files := testcluster.Must(client.DownloadCerts(ctx, cfg, key))(t)
	if len(files) != 7 {
		t.Errorf("downloaded %d files, and one was absent", len(files))
	}
	if got := string(files[filepath.Join(dir, "etcd/ca.crt")]); got != "content of "+dir+"/etcd/ca.crt" {
		t.Errorf("etcd/ca.crt = %q", got)
	}

	// Without the cluster CA's key, the uploaded files would be useless for a
	// control plane.
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UploadCerts(ctx, os.DirFS("/"), cfg, key); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "ca.key")) {
		t.Errorf("with an external CA: %v", err)
	}
}

func TestExpiredTokenIsRenewedAndALivingOneIsNot(t *testing.T) {
	client, _ := fakeClient()
	ctx := context.Background()
	token := testcluster.JoinToken("expiry.0123456789abcdef")
	expired := testcluster.Must(tokenSecret(token, time.Now().Add(-2*time.Hour)))(t)
	testcluster.Must(client.Apply(ctx, expired))(t)
	if found := testcluster.Must(client.FindJoinToken(ctx, 0))(t); found != "" {
		t.Errorf("found the expired token %q", found)
	}
	if changed := testcluster.Must(client.EnsureTokens(ctx, []config.BootstrapToken{token}))(t); len(changed) != 1 {
		t.Errorf("changed %q", changed)
	}
	if found := testcluster.Must(client.FindJoinToken(ctx, 59*time.Minute))(t); found != token.Token {
		t.Errorf("found %q", found)
	}
	if found := testcluster.Must(client.FindJoinToken(ctx, 61*time.Minute))(t); found != "" {
		t.Errorf("a token that ends too soon was found: %q", found)
	}
}

func TestAnOutageIsSatOut(t *testing.T) {
	client, writes := fakeClient()
	refusals := 0
	client.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		refusals++
		return refusals < 3, nil, syscall.ECONNREFUSED
	})
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "x"}}
	if changed := testcluster.Must(client.Apply(context.Background(), object))(t); len(changed) != 1 || refusals != 3 {
		t.Errorf("changed %q after %d attempts", changed, refusals)
	}
	writes()
	lost := false
	client.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		lost = !lost
		return lost, nil, syscall.ECONNREFUSED
	})
	if d, err := client.Compare(context.Background(), object); err != nil || d != nil {
		t.Errorf("compared with itself: %v, %v", d, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	lost, refusals = true, -1000
	object.Name = "b"
	if _, err := client.Apply(ctx, object); !errors.Is(err, syscall.ECONNREFUSED) || refusals != -999 {
		t.Errorf("cancelled: %v after %d attempts", err, refusals+1000)
	}
}

func TestHolds(t *testing.T) {
	type m = map[string]any
	type l = []any
	for name, c := range map[string]struct {
		have, want any
		holds      bool
	}{
		"equal":                     {m{"a": "1"}, m{"a": "1"}, true},
		"defaulted field":           {m{"a": "1", "b": "2"}, m{"a": "1"}, true},
		"other value":               {m{"a": "2"}, m{"a": "1"}, false},
		"absent":                    {m{}, m{"a": "1"}, false},
		"empty map and absent":      {m{}, m{"a": m{}}, true},
		"empty list and absent":     {m{}, m{"a": l{}}, true},
		"empty list and not":        {m{"a": l{"1"}}, m{"a": l{}}, false},
		"longer list":               {m{"a": l{"1", "2"}}, m{"a": l{"1"}}, false},
		"other order":               {m{"a": l{"1", "2"}}, m{"a": l{"2", "1"}}, false},
		"default in a list element": {m{"a": l{m{"x": "1", "y": "2"}}}, m{"a": l{m{"x": "1"}}}, true},
		"other type":                {m{"a": "1"}, m{"a": m{}}, false},
		"must be absent":            {m{"a": "1"}, m{"a": nil}, false},
		"is absent":                 {m{}, m{"a": nil}, true},
	} {
		if got := containsFields(c.have, c.want); got != c.holds {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestJoinCommand(t *testing.T) {
	got := JoinCommand("192.0.2.10:6443", "abcdef.0123456789abcdef", "sha256:1", "sha256:2")
	want := "./install join 192.0.2.10:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:1 --discovery-token-ca-cert-hash sha256:2"
	if got != want {
		t.Errorf("got %s", got)
	}
}

func TestCertificateKeyIsChecked(t *testing.T) {
	client, _ := fakeClient()
	for _, key := range []string{"", "abcd", strings.Repeat("x", 64), strings.Repeat("a", 62)} {
		if _, err := client.DownloadCerts(context.Background(), &config.Config{}, key); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
			t.Errorf("key %q: %v", key, err)
		}
	}
}
