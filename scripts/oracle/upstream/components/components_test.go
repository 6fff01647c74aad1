package components

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for given, want := range map[string]string{"v1.29": "v1.29.15", "v1.29.15": "v1.29.15", "v1.37": "v1.37.1"} {
		if r, err := Find(given); err != nil || r.Kubernetes != want {
			t.Errorf("Find(%q) = %v, %v", given, r.Kubernetes, err)
		}
	}
	if _, err := Find("v1.2"); err == nil || !strings.Contains(err.Error(), `"v1.2"`) || !strings.Contains(err.Error(), "v1.29.15") {
		t.Errorf("v1.2: %v", err)
	}
}

// A name in the cache belongs to exactly one recipe of all releases.
func TestKeys(t *testing.T) {
	seen := make(map[string]string)
	for _, release := range releases {
		programs := make(map[string]bool)
		for _, r := range slices.Concat(release.Recipes(), release.AddOnRecipes(), release.ConformanceRecipes(), release.TestRecipes()) {
			dir := r.Dir("/cache")
			if seen[dir] != "" && seen[dir] != r.Key() {
				t.Errorf("%s stands for two recipes", dir)
			}
			seen[dir] = r.Key()
			if found, err := release.Recipe(r.Name); err != nil || found.Key() != r.Key() {
				t.Errorf("%s: Recipe(%q) = %s, %v", release.Kubernetes, r.Name, found.Key(), err)
			}
			for _, name := range r.Binaries() {
				if programs[name] {
					t.Errorf("%s: two components make %s", release.Kubernetes, name)
				}
				programs[name] = true
			}
		}
		for _, name := range []string{"kubeadm", "kubelet", "kubectl", "containerd", "ctr", "containerd-shim-runc-v2", "runc", "etcd", "bridge", "host-local", "flanneld", "coredns", "pause", "e2e.test", "ginkgo"} {
			if !programs[name] {
				t.Errorf("%s has no %s", release.Kubernetes, name)
			}
		}
	}
	if a, b := runc(), runc(); a.Key() != b.Key() {
		t.Error("the same recipe has two keys")
	}
	changed := runc()
	changed.Targets[0].Tags += ",other"
	if changed.Key() == runc().Key() {
		t.Error("a changed recipe kept its key")
	}
}

func TestPath(t *testing.T) {
	t.Setenv("AIRLIFT_CACHE", t.TempDir())
	if _, err := Path("v1.29.15", "ctr"); err == nil || !strings.Contains(err.Error(), "--only containerd") {
		t.Errorf("not built: %v", err)
	}
	cache, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := containerd().Dir(cache)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ctr"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Path("v1.29", "ctr"); err != nil || got != filepath.Join(dir, "ctr") {
		t.Errorf("built: %q, %v", got, err)
	}
	if _, err := Path("v1.29.15", "docker"); err == nil || !strings.Contains(err.Error(), `"docker"`) {
		t.Errorf("unknown: %v", err)
	}
}

// Components of two architectures have different places in the cache.
func TestArchitectures(t *testing.T) {
	here, err := Find("v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	there, err := here.For("arm64")
	if err != nil || there.Arch() != "arm64" || here.Arch() != "amd64" {
		t.Fatalf("arm64 is %s, the other is %s: %v", there.Arch(), here.Arch(), err)
	}
	for i, r := range there.Recipes() {
		if r.Arch != "arm64" || r.Key() == here.Recipes()[i].Key() {
			t.Errorf("%s for %q has the key of amd64", r.Name, r.Arch)
		}
	}
	if _, err := here.For("mips"); err == nil || !strings.Contains(err.Error(), `"mips"`) {
		t.Errorf("mips: %v", err)
	}
}
