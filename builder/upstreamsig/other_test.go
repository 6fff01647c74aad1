package upstreamsig_test

import (
	"crypto/sha256"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder/upstreamsig"
	"airlift/scripts/fixtures/fakesigstore"
	"airlift/scripts/fixtures/rig"
)

// A valid signature of another image of Kubernetes proves nothing about this one. The names are the
// names in Kubernetes' signatures since 2022.
func TestSignatureOfAnotherImage(t *testing.T) {
	s := fakesigstore.New(t)
	v := verifier(t, s.TrustedRoot())
	digest := "sha256:" + strings.Repeat("a", 64)
	for _, c := range []struct {
		reference, named string
		want             error
	}{
		{"registry.k8s.io/kube-apiserver:v1.37.1", "registry.k8s.io/kube-apiserver", nil},
		{"registry.k8s.io/kube-apiserver:v1.37.1", "registry.k8s.io/kubernetes/kube-apiserver", nil},
		{"registry.k8s.io/kube-apiserver@" + digest, "europe-west1-docker.pkg.dev/k8s-artifacts-prod/images/kubernetes/kube-apiserver", nil},
		{"registry.k8s.io/kube-apiserver:v1.29.15@" + digest, "asia-northeast2-docker.pkg.dev/k8s-artifacts-prod/images/kube-apiserver", nil},
		{"registry.k8s.io/kubernetes/kube-apiserver:v1", "registry.k8s.io/kube-apiserver", nil},
		{"registry.k8s.io/pause:3.9", "us.gcr.io/k8s-artifacts-prod/pause", nil},
		{"registry.k8s.io/pause:3.9", "k8s.gcr.io/pause", nil},
		{"registry.k8s.io/coredns/coredns:v1.12.1", "registry.k8s.io/coredns/coredns", nil},

		{"registry.k8s.io/kube-apiserver:v1.37.1", "registry.k8s.io/etcd", upstreamsig.ErrOther},
		{"registry.k8s.io/kube-apiserver:v1.37.1", "europe-west1-docker.pkg.dev/k8s-artifacts-prod/images/etcd", upstreamsig.ErrOther},
		{"registry.k8s.io/kube-apiserver:v1.37.1", "registry.k8s.io/kube-apiserver-arm64", upstreamsig.ErrOther},
		{"registry.k8s.io/kube-apiserver:v1.37.1", "registry.k8s.io/x/kube-apiserver", upstreamsig.ErrOther},
		{"registry.k8s.io/coredns/coredns:v1.12.1", "registry.k8s.io/coredns", upstreamsig.ErrOther},
		{"registry.k8s.io/pause:3.9", "registry.k8s.io.example.com/pause", upstreamsig.ErrOther},
		{"registry.k8s.io/pause:3.9", "gcr.io/k8s-staging-kubernetes/pause", upstreamsig.ErrOther},
		{"registry.k8s.io/pause:3.9", "europe-west1-docker.pkg.dev/attacker/images/pause", upstreamsig.ErrOther},
		{"registry.k8s.io/pause:3.9", "", upstreamsig.ErrOther},
	} {
		who, ok := upstreamsig.OfImage(c.reference)
		if !ok {
			t.Fatal(c.reference)
		}
		payload := fakesigstore.Payload(c.named, digest)
		m, _, err := upstreamsig.ParseAnnotated(payload, s.Annotations(s.Sign(sha256.Sum256(payload), fakesigstore.ImageSigner)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Any([]upstreamsig.Material{*m}, digest, who); c.want == nil && err != nil || !errors.Is(err, c.want) {
			t.Errorf("%s, signed as %q: %v", c.reference, c.named, err)
		}
		// Next to the right one, another signature does not matter.
		right := fakesigstore.Payload("registry.k8s.io/"+strings.Split(strings.TrimPrefix(c.reference, "registry.k8s.io/"), ":")[0], digest)
		own, _, err := upstreamsig.ParseAnnotated(right, s.Annotations(s.Sign(sha256.Sum256(right), fakesigstore.ImageSigner)))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(c.reference, "@") {
			continue
		}
		if _, err := v.Any([]upstreamsig.Material{*m, *own}, digest, who); err != nil {
			t.Errorf("%s, also signed as %q: %v", c.reference, c.named, err)
		}
	}
}

// checkBinary is CheckBinary for content.
func checkBinary(content []byte, url string) error {
	return upstreamsig.CheckBinary(strings.NewReader(string(content)), int64(len(content)), url)
}

// The binary of another release, component or architecture is refused, whoever signed it.
func TestBinaryOfAnotherRelease(t *testing.T) {
	const base = "https://dl.k8s.io/release/v1.37.1/bin/linux/"
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"same":              {fakesigstore.Binary("kubelet", "v1.37.1", elf.EM_X86_64), ""},
		"older":             {fakesigstore.Binary("kubelet", "v1.26.0", elf.EM_X86_64), "is not version v1.37.1"},
		"longer":            {fakesigstore.Binary("kubelet", "v1.37.10", elf.EM_X86_64), "is not version v1.37.1"},
		"release candidate": {fakesigstore.Binary("kubelet", "v1.37.1-rc.0", elf.EM_X86_64), "is not version v1.37.1"},
		"another component": {fakesigstore.Binary("kubectl", "v1.37.1", elf.EM_X86_64), "cmd/kubectl"},
		"another processor": {fakesigstore.Binary("kubelet", "v1.37.1", elf.EM_AARCH64), `for "arm64"`},
		"no Go":             {[]byte("\x7fELF v1.37.1\x00"), "reading what the file is"},
	} {
		err := checkBinary(c.content, base+"amd64/kubelet")
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, upstreamsig.ErrOther) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Wherever the version is in the file.
	for _, before := range []int{0, 1<<20 - 500, 1<<20 - 250, 1<<20 - 130, 2<<20 - 131, 3 << 20} {
		content := append(fakesigstore.Binary("kubelet", "v1", elf.EM_X86_64), make([]byte, before)...)
		content = append(content, "v1.37.1\x00"...)
		if err := checkBinary(content, base+"amd64/kubelet"); err != nil {
			t.Errorf("after %d bytes: %v", before, err)
		}
	}
	if err := checkBinary([]byte("runc"), "https://github.com/opencontainers/runc/releases/download/v1.5.2/runc.amd64"); err != nil {
		t.Errorf("a file of another site: %v", err)
	}
}

// The real binaries, built with upstream's flags, match only their own release.
func TestRealBinaries(t *testing.T) {
	for _, name := range []string{"kubelet", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		for _, version := range []string{"v1.29.15"} { // the version of which make test builds all components
			path := rig.Component(t, version, name)
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			i, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			for _, url := range []string{"v1.29.15/bin/linux/amd64/kubelet", "v1.29.15/bin/linux/amd64/kubectl", "v1.29.15/bin/linux/amd64/" + name, "v1.37.1/bin/linux/amd64/kubelet", "v1.37.1/bin/linux/amd64/kubectl", "v1.29.1/bin/linux/amd64/kubelet", "v1.37.10/bin/linux/amd64/kubectl"} {
				want := strings.HasPrefix(url, version+"/") && filepath.Base(url) == name
				if err := upstreamsig.CheckBinary(f, i.Size(), "https://dl.k8s.io/release/"+url); (err == nil) != want {
					t.Errorf("%s %s as %s: %v", name, version, url, err)
				}
			}
		}
	}
}
