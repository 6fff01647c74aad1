package run

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/pki"
	"airlift/scripts/fixtures/modelsite"
)

// The script finds the node in each form of a kubelet's files, and prints no key.
func TestIdentityScript(t *testing.T) {
	ca, cert := modelsite.CertificateOf("a CA"), modelsite.CertificateOf("system:node:w1")
	hashes, err := pki.CAHashes(ca)
	if err != nil {
		t.Fatal(err)
	}
	const key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
	base := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct {
		files map[string]string
		want  identity
	}{
		"nothing": {nil, identity{}},
		"files of kubeadm": {map[string]string{
			"etc/kubernetes/kubelet.conf":     "clusters:\n- cluster:\n    certificate-authority-data: " + base(ca) + "\n    server: https://x\nusers:\n- user:\n    client-certificate: @/var/lib/kubelet/pki/current.pem\n    client-key: @/var/lib/kubelet/pki/current.pem\n",
			"var/lib/kubelet/pki/current.pem": string(cert) + key,
		}, identity{node: "w1", cas: hashes}},
		"all in one file, and the CA in a file next to it": {map[string]string{
			"etc/kubernetes/kubelet.conf": "clusters:\n- cluster:\n    certificate-authority: 'ca.crt'\nusers:\n- user:\n    client-certificate-data: " + base(cert) + "\n    client-key-data: " + base([]byte(key)) + "\n",
			"etc/kubernetes/ca.crt":       string(ca),
		}, identity{node: "w1", cas: hashes}},
		"an interrupted reset": {map[string]string{"var/lib/airlift/ledger.json": `{"version": 1, "entries": [{"kind": "file", "name": "/x"}, {"kind": "reset", "name": "node", "of": {"node": "w1", "cas": ["sha256:aa"]}}]}`},
			func() (is identity) { is.was.Node, is.was.CAs = "w1", []string{"sha256:aa"}; return is }()},
		"damage": {map[string]string{"etc/kubernetes/kubelet.conf": "certificate-authority-data: $(touch @/x)\nclient-certificate: -n /etc/shadow; touch @/x\n", "var/lib/airlift/ledger.json": "{"}, identity{}},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "@", root)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		script := strings.NewReplacer("/etc/kubernetes", root+"/etc/kubernetes", "/var/lib/airlift", root+"/var/lib/airlift").Replace(identityScript)
		out, err := exec.Command("/bin/sh", "-c", script).Output()
		if err != nil || strings.Contains(string(out), "PRIVATE KEY") || strings.Contains(string(out), base([]byte(key))) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
		is := parseIdentity(string(out))
		if is.node != c.want.node || strings.Join(is.cas, " ") != strings.Join(c.want.cas, " ") || is.was.Node != c.want.was.Node || strings.Join(is.was.CAs, " ") != strings.Join(c.want.was.CAs, " ") || is.machine != "" {
			t.Errorf("%s: %+v, want %+v, from\n%s", name, is, c.want, out)
		}
		if _, err := os.Stat(root + "/x"); err == nil {
			t.Errorf("%s: a value ran", name)
		}
	}
}
