package redact

import (
	"os"
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

// TestForms: in the lines of testdata/forms.txt, § is a secret.
func TestForms(t *testing.T) {
	const secret = "hunterxqz"
	text, err := os.ReadFile("testdata/forms.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		text := strings.NewReplacer("§", secret, "⏎", "\n", "␀", "\x00", "⇥", "\t").Replace(line)
		for name, form := range map[string]Form{"log": Log, "table": Records, "message": func(text []byte) []byte { return []byte(Line(string(text))) }} {
			if got := string(form([]byte(text))); strings.Contains(strings.ToLower(got), secret) {
				t.Errorf("%s: %q became %q", name, line, got)
			}
		}
	}
}

// TestEnd: the beginning of a cut log may be the tail of a secret; a record is not, nor is a process that
// systemd starts in the log.
func TestEnd(t *testing.T) {
	const at = "2026-11-26T12:00:00.000001+00:00 host1 "
	const record = "I1126 12:00:00.000000       1 server.go:1] kept\n"
	for text, want := range map[string]string{
		"-tail\n" + record: Marker + "\n" + record,
		at + "kubelet[1]: tail\n" + at + "systemd[1]: a.service: Deactivated.\n" + at + "kubelet[1]: tail\n" + at + "kubelet[1]: " + record: at + "kubelet[1]: " + Marker + "\n" + at + "systemd[1]: a.service: Deactivated.\n" + at + "kubelet[1]: " + Marker + "\n" + at + "kubelet[1]: " + record,
		at + "systemd[1]: Started a.service.\n" + at + "a[2]: kept\n":                                                                       at + "systemd[1]: Started a.service.\n" + at + "a[2]: kept\n",
		strings.Repeat("tail\n", CutLines) + "kept\n":                                                                                       strings.Repeat(Marker+"\n", CutLines) + "kept\n",
	} {
		if got := string(End([]byte(text))); got != want {
			t.Errorf("%q became\n%q, want\n%q", text, got, want)
		}
	}
}

// TestRecordInJSON: the fields of a record keep their order, and those without a secret their values.
func TestRecordInJSON(t *testing.T) {
	for line, want := range map[string]string{
		`{"level":"info","msg":"a <b>","env":["x=y"],"took":1.50,"z":{"name":"n","x":"y"}}`: `{"level":"info","msg":"a <b>","env":"[redacted]","took":1.50,"z":{"name":"n","x":"[redacted]"}}`,
		`{"ts":"x", "msg":"it failed: password=x y", "error": "kept"}`:                      `{"ts":"x", "msg":"it failed: password=[redacted]", "error": "kept"}`,
		`{"level":"info","args":["etcd","--name=a","-p","x"],"token":"x"}`:                  `{"level":"info","args":["etcd","--name=a","-p","[redacted]"],"token":"[redacted]"}`,
	} {
		if got := string(Log([]byte(line))); got != want {
			t.Errorf("%s became\n%s, want\n%s", line, got, want)
		}
	}
}
