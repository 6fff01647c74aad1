//go:build e2e

package e2e

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/hex"
	"testing"

	"airlift/installer/flow/initcluster"
	"airlift/installer/workflow"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// TestPhases creates a cluster phase by phase, each in a separate process. Then init finds
// nothing to do.
func TestPhases(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-phases", Hosts: 1})
	h := s.Hosts[0]
	t.Run("what an earlier phase brings is asked for by name", func(t *testing.T) {
		bare := untouched(t, h)
		contains(t, install(t, h, 1, "init", "phase", "certs", "apiserver"), "ca.crt", "hint: ")
		contains(t, install(t, h, 2, "init", "phase", "certs", "apiservre"), `"apiservre"`, "apiserver-kubelet-client")
		contains(t, install(t, h, 0, "init", "phase", "kubelet-start", "--dry-run"), "Nothing was changed")
		run(t, h, "sh", "-c", "rm -r /tmp/airlift-*")
		same(t, bare, untouched(t, h))
	})
	for _, phase := range phases(initcluster.Phases()) {
		if phase[0] == "upload-certs" {
			phase = append(phase, "--upload-certs")
		}
		out := install(t, h, 0, append([]string{"init", "phase"}, phase...)...)
		t.Logf("%s", out)
		if phase[0] == "upload-certs" {
			keyDecrypts(t, s, out)
		}
	}
	systemIsUp(t, s, 1)
	contains(t, install(t, h, 0, "init"), "Nothing was changed", "./install join ")
	manifests := run(t, h, "sh", "-c", "/root/install init phase addon --render-dir /root/addons --kube-proxy-server https://192.0.2.7:8443 && cat /root/addons/kube-proxy.yaml")
	contains(t, manifests, "server: https://192.0.2.7:8443", "kind: DaemonSet")
	contains(t, kubectl(t, s, "diff", "-f", "/root/addons/coredns.yaml", "-f", "/root/addons/flannel.yaml"), "")
}

// phases returns the arguments of each phase of a command. Of a phase with sub-phases, the first one runs alone, by
// another name if it has one; then all of them.
func phases(steps []workflow.Step) (args [][]string) {
	for _, s := range steps {
		switch {
		case s.Empty:
		case len(s.Steps) == 0:
			args = append(args, []string{s.Name})
		default:
			first := cmp.Or(append(s.Steps[0].Aliases, s.Steps[0].Name)...)
			args = append(args, []string{s.Name, first}, []string{s.Name, "all"})
		}
	}
	return args
}

// keyDecrypts fails unless the certificate key in a phase's output decrypts the
// certificates in the cluster. kubeadm stores a nonce before each ciphertext.
func keyDecrypts(t *testing.T, s *site.Site, out string) {
	t.Helper()
	key, err := hex.DecodeString(certificateKey(t, out))
	if err != nil {
		t.Fatal(err)
	}
	encoded := kubectl(t, s, "get", "secret", "kubeadm-certs", "--namespace=kube-system", "--output=jsonpath={.data.sa\\.key}")
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	text, err := gcm.Open(nil, data[:gcm.NonceSize()], data[gcm.NonceSize():], nil)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(text), "PRIVATE KEY")
}
