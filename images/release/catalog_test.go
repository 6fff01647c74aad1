package release_test

import (
	"strings"
	"testing"

	"airlift/images/release"
	"airlift/internal/fault"
)

// The output of "kubeadm config images list" of these versions.
func TestCatalogAgreesWithKubeadm(t *testing.T) {
	for _, c := range []struct{ version, etcd, coredns, pause string }{
		{"v1.29.0", "3.5.10-0", "v1.11.1", "3.9"},
		{"v1.29.2", "3.5.10-0", "v1.11.1", "3.9"},
		{"v1.29.3", "3.5.12-0", "v1.11.1", "3.9"},
		{"v1.29.10", "3.5.15-0", "v1.11.1", "3.9"},
		{"v1.29.15", "3.5.16-0", "v1.11.1", "3.9"},
		{"v1.30.4", "3.5.12-0", "v1.11.1", "3.9"},
		{"v1.30.14", "3.5.15-0", "v1.11.3", "3.9"},
		{"v1.31.0", "3.5.15-0", "v1.11.1", "3.10"},
		{"v1.31.14", "3.5.24-0", "v1.11.3", "3.10"},
		{"v1.32.2", "3.5.16-0", "v1.11.3", "3.10"},
		{"v1.32.13", "3.5.24-0", "v1.11.3", "3.10"},
		{"v1.33.5", "3.5.21-0", "v1.12.0", "3.10"},
		{"v1.33.13", "3.5.24-0", "v1.12.0", "3.10"},
		{"v1.34.1", "3.6.4-0", "v1.12.1", "3.10.1"},
		{"v1.34.9", "3.6.5-0", "v1.12.1", "3.10.1"},
		{"v1.35.6", "3.6.6-0", "v1.13.1", "3.10.1"},
		{"v1.36.3", "3.6.8-0", "v1.14.2", "3.10.2"},
		{"v1.37.1", "3.7.0-0", "v1.14.6", "3.10.2"},
	} {
		got, err := release.For(c.version, "amd64", release.Flannel, release.Versions{})
		if err != nil {
			t.Fatal(err)
		}
		refs := map[string]string{}
		for _, i := range got.Images {
			refs[i.Name] = i.Reference
		}
		for name, want := range map[string]string{
			release.Etcd:      "registry.k8s.io/etcd:" + c.etcd,
			release.CoreDNS:   "registry.k8s.io/coredns/coredns:" + c.coredns,
			release.Pause:     "registry.k8s.io/pause:" + c.pause,
			release.APIServer: "registry.k8s.io/kube-apiserver:" + c.version,
			release.Proxy:     "registry.k8s.io/kube-proxy:" + c.version,
			release.Flannel:   "ghcr.io/flannel-io/flannel:v0.28.4",
		} {
			if refs[name] != want {
				t.Errorf("%s: %s is %s, want %s", c.version, name, refs[name], want)
			}
		}
	}
}

func TestEveryKnownMinorVersionHasACatalog(t *testing.T) {
	if got := len(release.Known()); got != 9 {
		t.Errorf("%d minor versions are known, want 1.29 to 1.37", got)
	}
	for _, minor := range release.Known() {
		for _, arch := range release.Arches() {
			c, err := release.For(minor+".0", arch, release.NoCNI, release.Versions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Images) != 7 || len(c.Binaries) != 6 {
				t.Errorf("%s: %d images, %d binaries", minor, len(c.Images), len(c.Binaries))
			}
			for _, b := range c.Binaries {
				if !strings.Contains(b.URL, arch) {
					t.Errorf("%s: %s is not for %s", minor, b.URL, arch)
				}
			}
		}
	}
}

func TestUnknownIsAUsageErrorThatListsWhatIsKnown(t *testing.T) {
	for _, c := range []struct{ version, arch, cni, hint string }{
		{"v1.28.0", "amd64", "none", "v1.29, v1.30"},
		{"v1.38.0", "amd64", "none", "v1.37"},
		{"v2.0.0", "amd64", "none", "v1.37"},
		{"v1.29", "amd64", "none", "v1.29.15"},
		{"v1.29.15", "riscv64", "none", "amd64, arm64"},
		{"v1.29.15", "amd64", "calico", "flannel, none"},
	} {
		_, err := release.For(c.version, c.arch, c.cni, release.Versions{})
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%v: err = %v, hint = %q", c, err, fault.Hint(err))
		}
	}
}

func TestChannel(t *testing.T) {
	for in, want := range map[string][2]string{
		"v1.29.15":    {"v1.29.15", ""},
		"1.29.15":     {"v1.29.15", ""},
		"v1.29":       {"", "https://dl.k8s.io/release/stable-1.29.txt"},
		"1.29":        {"", "https://dl.k8s.io/release/stable-1.29.txt"},
		"stable-1.29": {"", "https://dl.k8s.io/release/stable-1.29.txt"},
		"stable":      {"", "https://dl.k8s.io/release/stable.txt"},
	} {
		full, url, err := release.Channel(in, release.Versions{})
		if err != nil || full != want[0] || url != want[1] {
			t.Errorf("Channel(%q) = %q, %q, %v", in, full, url, err)
		}
	}
	for _, in := range []string{"", "latest", "v1.28", "1.29.", "v1.29.15 ", "v1.29.15-rc.0", "v1.029.1"} {
		if _, _, err := release.Channel(in, release.Versions{}); fault.ExitCode(err) != fault.Usage {
			t.Errorf("Channel(%q): err = %v", in, err)
		}
	}
}

func TestNewestOf(t *testing.T) {
	for in, want := range map[string]string{
		"v1.29": "v1.29.15", "stable-1.36": "v1.36.3", "1.30": "v1.30.14", "stable": "v1.37.2", release.Newest(): "v1.37.2",
	} {
		if got := release.NewestOf(in); got != want {
			t.Errorf("NewestOf(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestNormalize(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for in, want := range map[string]string{
		"nginx":                       "docker.io/library/nginx:latest",
		"team/app:v1":                 "docker.io/team/app:v1",
		"registry.example.com:5000/x": "registry.example.com:5000/x:latest",
		"nginx:1.27" + digest:         "docker.io/library/nginx" + digest,
	} {
		if got, err := release.Normalize(in); err != nil || got != want {
			t.Errorf("Normalize(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "Nginx", "a b", "x:y:z"} {
		if _, err := release.Normalize(in); fault.ExitCode(err) != fault.Usage {
			t.Errorf("Normalize(%q): err = %v", in, err)
		}
	}
}

func TestWorker(t *testing.T) {
	c, err := release.For("v1.29.15", "amd64", release.Flannel, release.Versions{})
	if err != nil {
		t.Fatal(err)
	}
	var worker []string
	for _, i := range c.Images {
		if release.Worker(i.Name) {
			worker = append(worker, i.Name)
		}
	}
	if got := strings.Join(worker, " "); got != "pause kube-proxy flannel coredns" {
		t.Errorf("a worker needs %s", got)
	}
	if !release.Worker("docker.io/library/nginx:1.27") {
		t.Error("a worker does not get the user's images")
	}
}

// A bundle without components may be for any later version of Kubernetes.
func TestNothing(t *testing.T) {
	for version, want := range map[string]string{"v1.29.15": "v1.29.15", "1.99.0": "v1.99.0"} {
		c, err := release.Nothing(version, "amd64")
		if err != nil || c.Version != want || c.Nearest != "" || len(c.Images)+len(c.Binaries) > 0 {
			t.Errorf("%s: %+v, %v", version, c, err)
		}
	}
	for _, bad := range [][2]string{{"v1.28.9", "amd64"}, {"v1.29", "amd64"}, {"v1.29.15", "riscv64"}} {
		if _, err := release.Nothing(bad[0], bad[1]); fault.ExitCode(err) != fault.Usage {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for version, want := range map[string][2]string{
		"v1.99": {"", "https://dl.k8s.io/release/stable-1.99.txt"}, "stable": {"", "https://dl.k8s.io/release/stable.txt"}, "1.99.1": {"v1.99.1", ""},
	} {
		if full, url, err := release.AnyChannel(version); err != nil || full != want[0] || url != want[1] {
			t.Errorf("%s: %q, %q, %v", version, full, url, err)
		}
	}
	for _, bad := range []string{"v1.28", "newest", "v2.0"} {
		if _, _, err := release.AnyChannel(bad); fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
