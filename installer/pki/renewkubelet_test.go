package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/pki"
)

const kubeletCert = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// A kubelet's certificate is renewed only after it has expired, with the same subject, and the
// link refers to the new file. The earlier file stays, as when the kubelet itself renews.
func TestRenewKubelet(t *testing.T) {
	for name, made := range map[string]time.Time{"valid": time.Now(), "expired": time.Now().Add(-400 * 24 * time.Hour)} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			cfg := testConfig()
			n.init(cfg, made)
			before := n.read(kubeletCert)
			result, err := pki.RenewKubelet(cfg, n.fs(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range result.Files {
				if f.Link != "" {
					n.remove(f.Path)
				}
				put(t, n.root, f)
			}
			if name == "valid" {
				if len(result.Files) != 0 {
					t.Fatalf("a valid certificate: %+v", result.Files)
				}
				return
			}
			after := n.read(kubeletCert)
			if string(after) == string(before) {
				t.Fatal("the certificate is the old one")
			}
			pair, err := tls.X509KeyPair(after, after)
			if err != nil {
				t.Fatal(err)
			}
			if s := pair.Leaf.Subject.String(); s != "CN=system:node:"+cfg.NodeRegistration.Name+",O=system:nodes" {
				t.Errorf("subject %s", s)
			}
			if usage := pair.Leaf.ExtKeyUsage; len(usage) != 1 || usage[0] != x509.ExtKeyUsageClientAuth {
				t.Errorf("usages %v", usage)
			}
			out, err := exec.Command("openssl", "verify", "-purpose", "sslclient", "-CAfile", filepath.Join(n.root, dir, "ca.crt"), filepath.Join(n.root, kubeletCert)).CombinedOutput()
			if err != nil {
				t.Errorf("openssl verify: %v: %s", err, out)
			}
			files, err := os.ReadDir(filepath.Join(n.root, path.Dir(kubeletCert)))
			if err != nil || len(files) != 3 {
				t.Errorf("files %v, %v; want the old one, the new one and the link", files, err)
			}
			if again, err := pki.RenewKubelet(cfg, n.fs(), time.Now()); err != nil || len(again.Files) != 0 {
				t.Errorf("again: %+v, %v", again.Files, err)
			}
		})
	}
}

// kubeadm before its phase kubelet-finalize, and users with an external CA, have the certificate in
// kubelet.conf itself.
func TestRenewKubeletInKubeconfig(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	n.init(cfg, time.Now().Add(-400*24*time.Hour))
	admin := n.read("/etc/kubernetes/admin.conf") // any kubeconfig with a certificate in it
	n.write("/etc/kubernetes/kubelet.conf", admin)
	result, err := n.run(pki.RenewKubelet, cfg, time.Now())
	if err != nil || len(result.Files) != 1 || result.Files[0].Path != config.KubernetesDir+"/kubelet.conf" {
		t.Fatalf("%+v, %v", result.Files, err)
	}
	if again, err := pki.RenewKubelet(cfg, n.fs(), time.Now()); err != nil || len(again.Files) != 0 {
		t.Errorf("again: %+v, %v", again.Files, err)
	}
}

func TestRenewKubeletWithoutKey(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	n.init(cfg, time.Now().Add(-400*24*time.Hour))
	n.remove(dir + "ca.key")
	_, err := pki.RenewKubelet(cfg, n.fs(), time.Now())
	if err == nil || !strings.Contains(err.Error(), "the key of the CA /etc/kubernetes/pki/ca.crt is not on this host") {
		t.Errorf("%v", err)
	}
	n.remove("/etc/kubernetes/kubelet.conf")
	if _, err := pki.RenewKubelet(cfg, n.fs(), time.Now()); err == nil || !strings.Contains(err.Error(), "kubelet.conf does not exist") {
		t.Errorf("%v", err)
	}
}
