package cluster

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/testcluster"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// With an external etcd, control planes also share its client certificate,
// under separate names, wherever the files are on the host. kubeadm and Airlift
// must read each other's Secret.
func TestRealCertificatesOfAnExternalEtcd(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	admin := initialized(t, p)
	here, there := t.TempDir(), t.TempDir()
	cfg := *p.Config
	cfg.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://192.0.2.9:2379"},
		CAFile: filepath.Join(here, "etcd-ca.pem"), CertFile: filepath.Join(here, "client.pem"), KeyFile: filepath.Join(here, "client-key.pem")}
	for from, to := range map[string]string{"etcd/ca.crt": cfg.Etcd.External.CAFile,
		"apiserver-etcd-client.crt": cfg.Etcd.External.CertFile, "apiserver-etcd-client.key": cfg.Etcd.External.KeyFile} {
		data := testcluster.Must(os.ReadFile(filepath.Join(p.Config.CertificatesDir, from)))(t)
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	etcd := func(dir string) map[string]any {
		return map[string]any{"external": map[string]any{"endpoints": cfg.Etcd.External.Endpoints,
			"caFile": filepath.Join(dir, "etcd-ca.pem"), "certFile": filepath.Join(dir, "client.pem"), "keyFile": filepath.Join(dir, "client-key.pem")}}
	}

	// Both Secrets must have the same keys.
	theirs := NewCertificateKey()
	p.Kubeadm(t, "init", "phase", "upload-certs", "--upload-certs", "--config", testcluster.WriteYAML(t,
		map[string]any{
			"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "InitConfiguration", "certificateKey": theirs,
			"localAPIEndpoint": map[string]any{"advertiseAddress": testcluster.DocumentationAddress, "bindPort": p.Port},
			"nodeRegistration": map[string]any{"name": "cp1", "criSocket": "unix:///run/containerd/containerd.sock"},
		},
		map[string]any{
			"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "ClusterConfiguration", "kubernetesVersion": testcluster.Version,
			"certificatesDir": p.Config.CertificatesDir, "controlPlaneEndpoint": p.Config.ControlPlaneEndpoint, "etcd": etcd(here),
		}))
	keys := func() []string {
		secret := testcluster.Must(admin.API.CoreV1().Secrets("kube-system").Get(ctx, "kubeadm-certs", metav1.GetOptions{}))(t)
		return slices.Sorted(maps.Keys(secret.Data))
	}
	want := keys()
	got := testcluster.Must(admin.DownloadCerts(ctx, &cfg, theirs))(t)
	for _, path := range sharedCerts(&cfg) {
		if !bytes.Equal(got[path], testcluster.Must(os.ReadFile(path))(t)) {
			t.Errorf("we got another %s from kubeadm", path)
		}
	}
	ours := NewCertificateKey()
	testcluster.Must(admin.UploadCerts(ctx, os.DirFS("/"), &cfg, ours))(t)
	if got := keys(); !slices.Equal(got, want) {
		t.Errorf("our Secret has %v, kubeadm's %v", got, want)
	}

	other := cfg
	other.CertificatesDir = filepath.Join(there, "pki")
	moved := *cfg.Etcd.External
	moved.CAFile, moved.CertFile, moved.KeyFile = filepath.Join(there, "etcd-ca.pem"), filepath.Join(there, "client.pem"), filepath.Join(there, "client-key.pem")
	other.Etcd.External = &moved
	testcluster.Must(admin.Apply(ctx, testcluster.Must(testcluster.UploadConfig(&other))(t)...))(t)
	t.Cleanup(func() {
		_, _ = admin.Apply(context.Background(), testcluster.Must(testcluster.UploadConfig(p.Config))(t)...)
	})
	join := testcluster.JoinToken("joinex.0123456789abcdef")
	testcluster.Must(admin.EnsureTokens(ctx, []config.BootstrapToken{join}))(t)
	p.Kubeadm(t, "join", "phase", "control-plane-prepare", "download-certs", "--config", testcluster.WriteYAML(t, map[string]any{
		"apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "JoinConfiguration",
		"nodeRegistration": map[string]any{"name": "cp2", "criSocket": "unix:///run/containerd/containerd.sock"},
		"discovery": map[string]any{"bootstrapToken": map[string]any{
			"token": join.Token, "apiServerEndpoint": p.Endpoint(), "caCertHashes": testcluster.Must(pki.CAHashes(admin.CA))(t),
		}},
		"controlPlane": map[string]any{"certificateKey": ours, "localAPIEndpoint": map[string]any{"advertiseAddress": testcluster.DocumentationAddress}},
	}))
	for name, path := range sharedCerts(&cfg) {
		to := strings.Replace(strings.Replace(path, p.Config.CertificatesDir, other.CertificatesDir, 1), here, there, 1)
		if got := testcluster.Must(os.ReadFile(to))(t); !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(testcluster.Must(os.ReadFile(path))(t))) {
			t.Errorf("kubeadm got another %s", name)
		}
	}
}
