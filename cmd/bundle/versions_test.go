package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"

	"airlift/images/release"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

func versionsOf(t *testing.T) (known knownVersions) {
	t.Helper()
	out, errs, code := newShell(t).run("versions", "--output", "json")
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if err := json.Unmarshal([]byte(out), &known); err != nil {
		t.Fatal(err)
	}
	return known
}

func TestVersions(t *testing.T) {
	known := versionsOf(t)
	if known.Oldest != "v1.29.0" || known.Newest != release.NewestOf("stable") {
		t.Errorf("from %s to %s", known.Oldest, known.Newest)
	}
	var minors []string
	for n, r := range known.Releases {
		if n > 0 && known.Releases[n-1].Minor != r.Minor || n == 0 {
			minors = append(minors, r.Minor)
		}
		// What is listed is what a bundle has, at both ends of a range.
		for _, full := range []string{r.First, r.Last} {
			c, err := release.For(full, "amd64", release.Flannel, release.Versions{})
			if err != nil {
				t.Fatal(err)
			}
			has := map[string]string{}
			for _, i := range c.Images {
				_, has[i.Name], _ = strings.Cut(i.Reference, ":")
			}
			for _, b := range c.Binaries {
				has[b.Name] = b.Version
			}
			want := map[string]string{release.Etcd: r.Etcd, release.CoreDNS: r.CoreDNS, release.Pause: r.Pause, "crictl": r.Crictl}
			for name, version := range known.Components {
				want[name] = version
			}
			for name, version := range want {
				if has[name] != version {
					t.Errorf("%s: %s is %q in the bundle and %q in the list", full, name, has[name], version)
				}
			}
		}
	}
	if !slices.Equal(minors, release.Known()) {
		t.Errorf("minor versions %v, want %v", minors, release.Known())
	}

	out, _, code := newShell(t).run("versions")
	for _, want := range []string{
		"\nv1.29.11 to v1.29.15  3.5.16-0  v1.11.1  3.9     v1.28.0  v1beta3 (v1beta4)\n",
		"containerd v2.4.2, runc v1.5.2, cni-plugins v1.9.1, flannel v0.28.4\n",
		"\nnetwork-policy      v1.1.1   enforces NetworkPolicy objects, with the pod network flannel (kube-network-policies)\n",
		"Oldest: v1.29.0. Newest: " + known.Newest + ".",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is not in\n%s", code, want, out)
		}
	}
	if out, errs, code := newShell(t).run("versions", "-o", "xml"); code != fault.Usage || out != "" || !strings.Contains(errs, "json, yaml") {
		t.Errorf("xml: exit code %d\n%s%s", code, out, errs)
	}
	if out, errs, code := newShell(t).run("versions", "-o", "yaml"); code != 0 || errs != "" || !strings.Contains(out, "\noldest: v1.29.0\n") {
		t.Errorf("yaml: exit code %d\n%s%s", code, out, errs)
	}
}

// Real kubeadm lists the same images and reads the same versions of its configuration.
func TestVersionsAgreeWithKubeadm(t *testing.T) {
	known := versionsOf(t)
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		kubeadm := rig.Component(t, version, "kubeadm")
		at := slices.IndexFunc(known.Releases, func(r release.Range) bool {
			return semver.MustParse(r.First).Compare(semver.MustParse(version)) <= 0 && semver.MustParse(version).Compare(semver.MustParse(r.Last)) <= 0
		})
		if at < 0 {
			t.Fatalf("%s is in no range", version)
		}
		r := known.Releases[at]
		out, err := exec.Command(kubeadm, "config", "images", "list", "--kubernetes-version", version).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"/etcd:" + r.Etcd, "/coredns:" + r.CoreDNS, "/pause:" + r.Pause} {
			if !strings.Contains(string(out), want+"\n") {
				t.Errorf("%s: %s is not among kubeadm's images:\n%s", version, want, out)
			}
		}
		for _, api := range []string{"v1beta3", "v1beta4", "v1"} {
			file := filepath.Join(t.TempDir(), "kubeadm.yaml")
			text := "apiVersion: kubeadm.k8s.io/" + api + "\nkind: ClusterConfiguration\nkubernetesVersion: " + version + "\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				args []string
				want bool
			}{
				{nil, slices.Contains(r.ConfigAPIs, api)},
				{[]string{"--allow-experimental-api"}, slices.Contains(slices.Concat(r.ConfigAPIs, r.Experimental), api)},
			} {
				out, err := exec.Command(kubeadm, append([]string{"config", "validate", "--config", file}, c.args...)...).CombinedOutput()
				if (err == nil) != c.want {
					t.Errorf("kubeadm %s, %s %v: %v, want success %v\n%s", version, api, c.args, err, c.want, out)
				}
			}
		}
	}
}
