package redact

import (
	"strings"
	"testing"

	"airlift/scripts/fixtures/secrets"
	"airlift/scripts/fixtures/seed"
)

// formOf returns the form in which the source of a probe is redacted.
func formOf(source string) Form {
	switch {
	case source == secrets.Log:
		return Log
	case source == secrets.Table:
		return Records
	case source == secrets.Any:
		return Text
	case source == secrets.Message:
		return func(text []byte) []byte { return []byte(Line(string(text))) }
	case strings.HasPrefix(source, "/"):
		return File(source)
	}
	return Command(source)
}

// TestNoSecretIsLeft puts random secrets into every kind of place. AIRLIFT_SEED repeats a run.
func TestNoSecretIsLeft(t *testing.T) {
	g := secrets.New(seed.Value(t))
	count := 0
	failed := map[string]bool{}
	for range 10 {
		for _, p := range g.Probes() {
			secret := g.Secret()
			if p.OneLine {
				secret = strings.ReplaceAll(secret, "\n", " ")
			}
			count++
			form := formOf(p.Source)
			got, other := string(form([]byte(p.Text(secret)))), string(form([]byte(p.Text("Zq9xW1kLp0"))))
			if piece := secrets.Leak(got, other, secret); piece != "" && !failed[p.Name] {
				failed[p.Name] = true
				t.Errorf("%s, %s: %q of %q is left in\n%s\nfrom\n%s", p.Source, p.Name, piece, secret, got, p.Text(secret))
			}
			if !strings.Contains(got, Marker) && !p.Dropped {
				t.Errorf("%s, %s: nothing shows that something was taken out of\n%s\nin\n%s", p.Source, p.Name, p.Text(secret), got)
			}
			if again := string(form([]byte(got))); again != got {
				t.Errorf("%s, %s: redacted again:\n%s\nbefore:\n%s", p.Source, p.Name, again, got)
			}
		}
	}
	t.Logf("%d secrets", count)
}

// TestAnyTextInAnyFile: a file may have something else than its name promises.
func TestAnyTextInAnyFile(t *testing.T) {
	g := secrets.New(seed.Value(t))
	failed := map[string]bool{}
	for _, path := range []string{
		"/etc/kubernetes/manifests/x.yaml", "/etc/kubernetes/admin.conf", "/var/lib/kubelet/config.yaml", "/etc/cni/net.d/10-x.conflist", "/etc/cni/net.d/calico-kubeconfig",
		"/etc/containerd/config.toml", "/etc/containerd/conf.d/x.toml", "/etc/containerd/certs.d/r/hosts.toml", "/etc/default/kubelet", "/etc/sysconfig/kubelet", "/etc/os-release",
		"/var/lib/kubelet/kubeadm-flags.env", "/run/flannel/subnet.env", "/etc/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d/10.conf",
		"/usr/lib/systemd/system/kubelet.service", "/usr/lib/systemd/system/kubelet.service.d/10.conf", "/etc/fstab", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf",
		"/etc/modules-load.d/x.conf", "/etc/sysctl.d/x.conf", "/somewhere/else",
	} {
		for _, p := range g.Probes() {
			secret := g.Secret()
			if p.OneLine {
				secret = strings.ReplaceAll(secret, "\n", " ")
			}
			form := File(path)
			got, other := string(form([]byte(p.Text(secret)))), string(form([]byte(p.Text("Zq9xW1kLp0"))))
			if piece := secrets.Leak(got, other, secret); piece != "" && !failed[path+p.Name] {
				failed[path+p.Name] = true
				t.Errorf("%s, %s: %q of %q is left in\n%s\nfrom\n%s", path, p.Name, piece, secret, got, p.Text(secret))
			}
		}
	}
}
