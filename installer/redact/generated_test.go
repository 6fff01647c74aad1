package redact

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
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
	case source == secrets.Any:
		return File("/etc/default/x")
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

// TestNoSecretIsInADiff: of two versions with other secrets, neither is left; nor if one version has no such text.
func TestNoSecretIsInADiff(t *testing.T) {
	g := secrets.New(seed.Value(t))
	for _, p := range g.Probes() {
		from, to := g.Secret(), g.Secret()
		if p.OneLine {
			from, to = strings.ReplaceAll(from, "\n", " "), strings.ReplaceAll(to, "\n", " ")
		}
		diff := func(from, to string) string {
			return Diff(formOf(p.Source), Version{"now", []byte(from)}, Version{"then", []byte(to)}, 3)
		}
		other := diff(p.Text("Zq9xW1kLp0"), "") + diff("", p.Text("Zq9xW1kLp0"))
		for _, got := range []string{diff(p.Text(from), p.Text(to)), diff("", p.Text(to)), diff(p.Text(from), "")} {
			for _, secret := range []string{from, to} {
				if piece := secrets.Leak(got, other, secret); piece != "" {
					t.Errorf("%s, %s: %q is left in\n%s", p.Source, p.Name, piece, got)
				}
			}
		}
	}
}

// TestDiffsComeFromHere: no other package compares texts, so no difference is shown with its secrets.
func TestDiffsComeFromHere(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != "../.." {
			return fs.SkipDir
		}
		if err != nil {
			return err
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			if i.Path.Value != `"github.com/pmezard/go-difflib/difflib"` {
				continue
			}
			found++
			if name != "../../installer/redact/diff.go" && !strings.HasPrefix(name, "../../scripts/") {
				t.Errorf("%s shows differences without this package", name)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d imports, %v", found, err)
	}
}
