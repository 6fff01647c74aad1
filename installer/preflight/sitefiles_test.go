package preflight

import (
	"os"
	"strings"
	"testing"

	"airlift/installer/host"
)

func TestSiteFiles(t *testing.T) {
	s := healthy(t)
	for _, dir := range []string{"/etc/site/dir.conf", "/opt"} {
		if err := os.MkdirAll(s.host.Path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, s.host.Path("/"), "/opt/file", "a file")
	write(t, s.host.Path("/"), "/etc/site/old.conf", "an older file")
	s.Config.CertificatesDir = "/srv/pki"
	s.Binaries = []host.Binary{{Path: "/usr/local/bin/kubelet"}}
	for path, want := range map[string]string{
		"/etc/site/new.conf":                     "",
		"/etc/site/old.conf":                     "", // it is kept as a copy
		"/etc/site/dir.conf":                     "not a regular file",
		"/opt/file/below":                        "not a directory",
		"/etc/kubernetes/admin.conf":             "belongs to Kubernetes",
		"/var/lib/kubelet/config.json":           "belongs to Kubernetes",
		"/var/lib/airlift/ledger.json":           "belongs to Airlift",
		"/usr/local/bin/kubelet":                 "belongs to Airlift",
		"/srv/pki/ca.crt":                        "belongs to Kubernetes", // certificatesDir
		"/usr/local/bin/kubelet-helper":          "",
		"/etc/systemd/system/containerd.service": "belongs to Airlift",
		"/etc/containerd/conf.d/site.toml":       "",
	} {
		s.Files = []host.SiteFile{{Path: path, Mode: 0o644}}
		found := s.runOne(t, "SiteFiles")
		switch {
		case want == "" && len(found) > 0:
			t.Errorf("%s: %+v", path, found)
		case want != "" && (len(found) != 1 || !strings.Contains(found[0].Message, want) || found[0].Fix == ""):
			t.Errorf("%s: %+v, want %q", path, found, want)
		}
	}
}

// While packages of the bundle are not installed, a binary that one of them may bring is no reason to refuse the host, as cluster apply
// does before the first change. After that, it is.
func TestPendingPackages(t *testing.T) {
	s := healthy(t)
	remove(t, s, "/sbin/losetup")
	for pending, warning := range map[int]bool{0: false, 2: true} {
		s.PendingPackages = pending
		if found := s.runOne(t, "FileExisting-losetup"); len(found) != 1 || found[0].Warning != warning || found[0].Fix == "" {
			t.Errorf("%d packages: %+v", pending, found)
		}
		if found := s.runOne(t, "Packages"); warning != (len(found) == 1 && found[0].Warning) {
			t.Errorf("%d packages: %+v", pending, found)
		}
	}
}
