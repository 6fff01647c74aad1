package redact

import (
	"strings"
	"testing"
)

// TestLongLines: no line takes quadratic time. Without the limits of one decision, this takes minutes.
func TestLongLines(t *testing.T) {
	for _, part := range []string{"--flag-one=true --flag-two=/etc/x ", `"--flag-one=true","--flag-two=/etc/x",`, "https://10.0.0.1:2379,", "key:{a ", "x=y,", "a:b@sha256:c,"} {
		if got := string(Log([]byte(strings.Repeat(part, (1<<20)/len(part))))); got == "" {
			t.Errorf("%q: nothing is left", part)
		}
	}
}

// TestLeaks: S is a secret in a place where another reading of the inputs found it left.
func TestLeaks(t *testing.T) {
	const secret = "hunterxqz"
	const manifest = "/etc/kubernetes/manifests/a.yaml"
	for _, c := range []struct{ source, text, kept string }{
		{manifest, "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [mysqladmin, ping, -u, root, -pS]\n", "mysqladmin"},
		{"systemctl status x", "   CGroup: /x\n           └─12 /usr/bin/mysqld -pS\n", "/usr/bin/mysqld"},
		{"/etc/systemd/system/kubelet.service.d/a.conf", "[Service]\nExecStartPre=/usr/bin/mysqladmin -pS\n", "/usr/bin/mysqladmin"},
	} {
		form := Log
		if c.source != "" {
			form = formOf(c.source)
		}
		got := string(form([]byte(strings.ReplaceAll(c.text, "S\n", secret+"\n"))))
		if strings.Contains(got, secret) || !strings.Contains(got, c.kept) {
			t.Errorf("%s: %q became\n%s", c.source, c.text, got)
		}
	}
}
