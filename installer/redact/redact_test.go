package redact

import (
	"encoding/base64"
	"os/exec"
	"strings"
	"testing"
)

// TestTaken: in a text, these secrets are taken out, and the rest stays.
func TestTaken(t *testing.T) {
	key, err := exec.Command("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256").Output()
	if err != nil {
		t.Fatal(err)
	}
	const (
		token = "qx7k2m.9f3b8d1c6e5a4f70"
		hex   = "4f1d6c0b9a8e7f6d5c4b3a291817161504f1d6c0b9a8e7f6d5c4b3a291817161"
		jwt   = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLXBhcnQtb2YtdGhl"
		at    = "2026-11-26T12:00:00.5Z stderr F "
	)
	for text, want := range map[string]string{
		"a\n" + string(key) + "b\n": "a\n§\nb\n",
		at + "a\n" + at + strings.ReplaceAll(string(key), "\n", "\n"+at) + "b\n" + at + "c\n": at + "a\n" + at + "§\n" + at + "b\n" + at + "c\n",
		"data: " + base64.StdEncoding.EncodeToString(key) + " x":                              "data: § x",
		"AGE-SECRET-KEY-1QQPQYQ x": "§ x",
		"kubeadm join 10.0.0.1:6443 --token " + token + " --certificate-key " + hex:         "kubeadm join 10.0.0.1:6443 --token qx7k2m.§ --certificate-key §",
		"[upload-certs] Using certificate key: " + hex + "\n":                               "[upload-certs] Using certificate key: §\n",
		`{"certificateKey":"` + hex + `"}`:                                                  `{"certificateKey":"§"}`,
		"id_token " + jwt + ", x":                                                           "id_token §, x",
		"Authorization: Bearer " + hex + "\nx":                                              "Authorization: Bearer §\nx",
		`"Authorization":["Bearer ` + hex + `"],"x":1`:                                      `"Authorization":["Bearer §"],"x":1`,
		"authorization: Basic YWRtaW46c3VwZXJzZWNyZXQxMjM=":                                 "authorization: Basic §",
		"Get \"https://robot:a@b/c@r.example/v2/\": EOF":                                    "Get \"https://§@r.example/v2/\": EOF",
		"image: registry.k8s.io/etcd@sha256:" + hex:                                         "image: registry.k8s.io/etcd@sha256:" + hex,
		"kernel: Kernel command line: root=/dev/sda x=y\nnext":                              "kernel: Kernel command line: §\nnext",
		`err="x" cmd=["mysqladmin","-psecret"]` + "\nnext":                                  `err="x" cmd=[§` + "\nnext",
		"container &Container{Name:a,Value:b,} start failed in pod a_b(c): ErrImagePull: x": "container &Container{§} start failed in pod a_b(c): ErrImagePull: x",
	} {
		want = strings.ReplaceAll(want, "§", Marker)
		if got := string(Log([]byte(text))); got != want {
			t.Errorf("%q became\n%q, want\n%q", text, got, want)
		}
		if got := string(Log([]byte(want))); got != want {
			t.Errorf("redacted again: %q became\n%q", want, got)
		}
	}
}

// TestEnd: a log without its beginning may begin in a key.
func TestEnd(t *testing.T) {
	for text, want := range map[string]string{
		"tail\n-----END PRIVATE KEY-----\nkept\n":                                   Marker + "\nkept\n",
		"kept\n-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----\n": "kept\n" + Marker + "\n",
		"kept\n": "kept\n",
	} {
		if got := string(End([]byte(text))); got != want {
			t.Errorf("%q became\n%q, want\n%q", text, got, want)
		}
	}
}

// TestSecretsInStructures: places in structures where a list or a type does not decide.
func TestSecretsInStructures(t *testing.T) {
	const secret = "hunterxqz"
	const manifest = "/etc/kubernetes/manifests/a.yaml"
	for _, c := range []struct{ source, text, kept string }{
		{manifest, "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [mysqladmin, ping, -u, root, -p§]\n", "mysqladmin"},
		{"systemctl status x", "   CGroup: /x\n           └─12 /usr/bin/mysqld -p§\n", "/usr/bin/mysqld"},
		{"/etc/systemd/system/kubelet.service.d/a.conf", "[Service]\nExecStartPre=/usr/bin/mysqladmin -p§\n", "/usr/bin/mysqladmin"},
		{manifest, "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a, password: §}}\n", "app: a"},
		{manifest, "apiVersion: v1\nkind: Event\nreason: FailedMount\nmessage: kept\nnote: §\n", "kept"},
		{manifest, "apiVersion: v1\nkind: Event\nreason: FailedMount\nmessage: 'Get \"https://h/x?y=§\": connection refused'\n", "connection refused"},
		{manifest, "apiVersion: v1\nkind: Event\ninvolvedObject: {namespace: app}\nreason: Unhealthy\nmessage: '§'\n", "Unhealthy"},
		{manifest, "apiVersion: v1\nkind: Event\ninvolvedObject: {namespace: kube-system}\nreason: Unhealthy\nmessage: kept\nnote: §\n", "kept"},
		{manifest, "apiVersion: v1\nkind: ConfigMap\ndata:\n  Corefile: |\n    .:53 {\n      template IN TXT x {\n        answer \"x 60 IN TXT §\"\n      }\n    }\n", "template IN TXT"},
		{"cat /proc/cmdline", "root=iscsi:user:§@10.0.0.1::::iqn.x ro\n", "ro"},
		{"cat /proc/cmdline", "root=live:https://h/api/§ rw\n", "rw"},
		{manifest, "apiVersion: v1\nkind: ConfigMap\ndata:\n  Corefile: |\n    .:53 {\n      forward . https://u:§@1.1.1.1\n      errors\n      log . \"{remote} token=§\"\n    }\n", "errors"},
	} {
		got := string(formOf(c.source)([]byte(strings.ReplaceAll(c.text, "§", secret))))
		if strings.Contains(got, secret) || !strings.Contains(got, c.kept) {
			t.Errorf("%s: %q became\n%s", c.source, c.text, got)
		}
	}
}

// TestTextInParameters: a line that is no parameter is taken out, whatever its letters are.
func TestTextInParameters(t *testing.T) {
	form := File("/etc/sysctl.d/x.conf")
	for _, text := range []string{"6ckm1br/SZM2syY2\n", "6ckm1br/SZM2syY2==\n", "hunter2.correct.horse\n", "net.hunter2\n", "-6ckm1br/SZM2syY2\n"} {
		if got := string(form([]byte(text))); got != Marker+"\n" {
			t.Errorf("%q became %q", text, got)
		}
	}
	for _, text := range []string{"-net.ipv4.conf.*.rp_filter\n", "net/ipv4/ip_forward = 1\n", "vm.overcommit_memory=1\n"} {
		if got := string(form([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
