package redact

import (
	"strings"
	"testing"
)

// TestLongLines: no line takes quadratic time. Without the limits of one decision, this takes minutes.
func TestLongLines(t *testing.T) {
	for _, part := range []string{"--flag-one=true --flag-two=/etc/x ", `"--flag-one=true","--flag-two=/etc/x",`, "https://10.0.0.1:2379,", "key:{a ", "a:", "x=y,", "a:b@sha256:c,"} {
		if got := string(Log([]byte(strings.Repeat(part, (1<<18)/len(part))))); got == "" {
			t.Errorf("%q: nothing is left", part)
		}
	}
}

// TestLeaks: § is a secret in a place where another reading of the inputs found it left.
func TestLeaks(t *testing.T) {
	const secret = "hunterxqz"
	const manifest = "/etc/kubernetes/manifests/a.yaml"
	for _, c := range []struct{ source, text, kept string }{
		{manifest, "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [mysqladmin, ping, -u, root, -p§]\n", "mysqladmin"},
		{"systemctl status x", "   CGroup: /x\n           └─12 /usr/bin/mysqld -p§\n", "/usr/bin/mysqld"},
		{"/etc/systemd/system/kubelet.service.d/a.conf", "[Service]\nExecStartPre=/usr/bin/mysqladmin -p§\n", "/usr/bin/mysqladmin"},
		{"", "E1126 12:00:00.000000    1234 remote_runtime.go:496] \"ExecSync cmd from runtime service failed\" err=\"timed out\" cmd=[\"mysqladmin\",\"ping\",\"-uroot\",\"-p§\"]", "mysqladmin"},
		{"", "E1126 12:00:00.000000    1234 remote_runtime.go:496] \"Exec\" cmd=[\"redis-cli\",\"-a\",\"§\",\"ping\"]", "redis-cli"},
		{"", "time=\"2026-11-26T12:00:00Z\" level=info msg=\"ExecSync for \\\"id\\\" with command [/bin/check.sh §] and timeout 1 (s)\"", "/bin/check.sh"},
		{"", "host sudo: COMMAND=mysqladmin ping -uroot -p§", "COMMAND="},
		{"", "failed to connect to root:§@tcp(10.0.0.1:3306)/app: refused", "root:"},
		{"", "pulling image robot:§@registry.example:5000/app failed", "robot:"},
		{"", "dbpass=§", "dbpass="},
		{"", "smtppass=§", "smtppass="},
		{"", "accesskey=§", "accesskey="},
		{"", "secretkey=§", "secretkey="},
		{"", "authtoken=§", "authtoken="},
		{"", "accesstoken=§", "accesstoken="},
		{"", "rootpw=§", "rootpw="},
		{"", "userpwd=§", "userpwd="},
		{"", "encryptionkey=§", "encryptionkey="},
		{"", "masterkey=§", "masterkey="},
		{"", "dbcreds=§", "dbcreds="},
		{"", "appkey=§", "appkey="},
		{"", "pswd=§", "pswd="},
		{"", "contraseña=§", "contraseña="},
		{"", "senha=§", "senha="},
		{"", "wachtwoord=§", "wachtwoord="},
		{"", "пароль=§", "пароль="},
		{"", "clave=§", "clave="},
		{"", "mot de passe : §", "mot de passe"},
		{"", "Ocp-Apim-Subscription-Key: §", "Key"},
		{"", "credentials:\n  alice: §\n  bob: §\nnext: kept\n", "next: kept"},
		{"", "auth:\n  admin: x§ password: x\n", "admin:"},
		{"", "tokens:\n  ci: |\n    §\n  \"x\": §\n", "ci:"},
		{"", "Kernel command line: root=/dev/sda netroot=iscsi:user:§@10.0.0.1::::iqn.x", "root=/dev/sda"},
		{"", "Get \"https://h/api/§\"", "https://h/"},
		{"", "Get \"https://h/apis/§\"", "https://h/"},
		{"", "pypi-§", ""},
		{"", "dop_v1_§", ""},
		{"", "hf_§", ""},
		{"", "glrt-§", ""},
		{"", "tskey-§", ""},
		{"", "shpat_§", ""},
		{"", "dapi§", ""},
		{"", "whsec_§", ""},
		{"", "glsa_§", ""},
		{"", "xapp-§", ""},
		{"", "Liveness probe failed: mysqladmin: -p§7", "mysqladmin"},
		{manifest, "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a, password: §}}\n", "app: a"},
		{manifest, "apiVersion: v1\nkind: ConfigMap\ndata:\n  Corefile: |\n    .:53 {\n      template IN TXT x {\n        answer \"x 60 IN TXT §\"\n      }\n    }\n", "template IN TXT"},
		{"cat /proc/cmdline", "root=iscsi:user:§@10.0.0.1::::iqn.x ro\n", "ro"},
		{"cat /proc/cmdline", "root=live:https://h/api/§ rw\n", "rw"},
		{"/etc/kubernetes/manifests/a.yaml", "apiVersion: v1\nkind: ConfigMap\ndata:\n  Corefile: |\n    .:53 {\n      forward . https://u:§@1.1.1.1\n      errors\n      log . \"{remote} token=§\"\n    }\n", "errors"},
	} {
		form := Log
		if c.source != "" {
			form = formOf(c.source)
		}
		got := string(form([]byte(strings.ReplaceAll(c.text, "§", secret))))
		if strings.Contains(got, secret) || !strings.Contains(got, c.kept) {
			t.Errorf("%s: %q became\n%s", c.source, c.text, got)
		}
	}
}

// TestCertificateKey: kubeadm prints the key that decrypts the certificates in the cluster.
func TestCertificateKey(t *testing.T) {
	for _, before := range []string{"[upload-certs] Using certificate key:\n", "Using certificate key ", "the certificate key: "} {
		if got := string(Log([]byte(before + plantedKey + "\n"))); strings.Contains(got, plantedKey) {
			t.Errorf("%q is left in\n%s", plantedKey, got)
		}
	}
}
