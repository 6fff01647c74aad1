package status

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/serving"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// TestWaitsForServing: a kubelet that waits for the approval of its serving certificate is a warning.
func TestWaitsForServing(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	write := func(file, text string) {
		t.Helper()
		if _, err := h.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(want bool) {
		t.Helper()
		found, err := (&Reader{Host: h}).readCertificates(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := false
		for _, w := range found.warnings {
			got = got || strings.Contains(w.Message, "the kubelet has no serving certificate")
		}
		if got != want {
			t.Errorf("warned: %t, want %t: %v", got, want, found.warnings)
		}
	}
	const begin = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	waits(false)
	write(config.KubeletConfigFile, begin)
	waits(false)
	write(config.KubeletConfigFile, begin+"serverTLSBootstrap: true\n")
	waits(true)
	write(config.KubeletPKIDir+"/"+serving.CertificateName, "x")
	waits(false)
}

// TestUnrecorded: on a control plane that approves serving certificates, a worker without a record is a warning with the command.
func TestUnrecorded(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	client, _ := testclient.Fake(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "1", CreationTimestamp: metav1.NewTime(time.Now().Add(-2 * time.Hour))}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "airlift-node-addresses"}},
	)
	warnings := func() []Problem {
		t.Helper()
		r := &Reader{Host: h, Kubeconfig: "admin.conf", Only: []string{"api"}}
		r.dial = func(context.Context) (*cluster.Client, error) { return client, nil }
		s, err := r.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Warnings
	}
	for _, f := range []struct{ path, text string }{
		{config.KubeletConfigFile, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nserverTLSBootstrap: true\n"}, {serving.SettingsPath, "{}"},
	} {
		if found := warnings(); len(found) > 0 {
			t.Errorf("without %s: %v", f.path, found)
		}
		if _, err := h.WriteFile(f.path, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found := warnings(); len(found) != 1 || !strings.Contains(found[0].Message, "the node worker are not recorded") || found[0].Fix != "./install node addresses worker ADDRESS" {
		t.Errorf("%+v", found)
	}
}
