package builder_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"airlift/builder"
	"airlift/builder/events"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesigstore"
	"airlift/scripts/fixtures/fakesites"
)

// vendorLayout writes a layout with images by name, and an archive of it.
func vendorLayout(t *testing.T, list map[string]v1.Image) (dir, archive string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "layout")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for name, img := range list {
		if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})); err != nil {
			t.Fatal(err)
		}
	}
	archive = dir + ".tar"
	if out, err := exec.Command("tar", "-C", dir, "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	return dir, archive
}

// runtimes makes a docker and a containerd that have the image of an archive.
func runtimes(t *testing.T, archive string) {
	t.Helper()
	docker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, archive) }))
	t.Cleanup(docker.Close)
	t.Setenv("DOCKER_HOST", "tcp://"+docker.Listener.Addr().String())
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "ctr"), fmt.Appendf(nil, "#!/bin/sh\nexec cat %q\n", archive), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// No source of images replaces an image of the catalog without =NAME, in any bundle.
func TestSourcesDoNotReplaceTheCatalog(t *testing.T) {
	u := fakesites.New(t, version)
	apiserver := "registry.k8s.io/kube-apiserver:" + version
	vendor := fakesites.Image(t, "amd64", "vendor")
	dir, archive := vendorLayout(t, map[string]v1.Image{apiserver: vendor})
	runtimes(t, archive)
	for _, source := range []string{"oci:" + dir, "oci:" + dir + ":" + apiserver, "oci-archive:" + archive, "docker-archive:" + archive,
		"docker-daemon:" + apiserver, "containerd:" + apiserver} {
		for _, only := range [][]string{nil, {bundle.OnlyImages}} {
			o := options(t, u)
			o.Images, o.Only = []string{source}, only
			_, err := runOne(t.Context(), o)
			if err == nil || fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "the image "+apiserver+" has a name of Kubernetes' own images") {
				t.Errorf("%s, only %v: %v", source, only, err)
				continue
			}
			// The hint is what to type, in addition.
			_, add, _ := strings.Cut(fault.Hint(err), "--image ")
			add, _, _ = strings.Cut(add, ";")
			o.Images = append(o.Images, add)
			if r := run(t, o); !slices.ContainsFunc(r.Manifest.Images, func(i bundle.Image) bool {
				return i.Reference == apiserver && i.Target.Digest == digestOfImage(t, vendor)
			}) {
				t.Errorf("%s: %s has not replaced the image", source, add)
			}
		}
	}
	for name, want := range map[string]bool{
		"registry.k8s.io/pause:3.9": true, "ghcr.io/flannel-io/flannel:v0.28.4": true, "registry.k8s.io/coredns/coredns:v1.11.1": true,
		"registry.k8s.io/kube-apiserver:v1.37.1":  true,                                                             // nodes of another version
		"index.docker.io/library/traefik:v3.7.13": true, "traefik:v3.7.13": true, "docker.io/traefik:v3.7.13": true, // an add-on
		"docker.io/rancher/local-path-provisioner:v0.0.30": true,
		"traefik:v2": false, "registry.example/kube-apiserver:" + version: false, "registry.k8s.io/e2e-test-images/agnhost:2.47": false,
	} {
		o := options(t, u)
		o.Images, o.Only = []string{"docker-daemon:" + name}, []string{bundle.OnlyImages}
		if _, err := runOne(t.Context(), o); want != (err != nil && strings.Contains(err.Error(), "would replace it")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An image without layers has no layers in a base.
func TestImageWithoutLayers(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	u.Push("docker.io/team/empty:1", fakesites.ImageOf(t, "amd64"))
	o := options(t, u)
	var out bytes.Buffer
	o.Images, o.Only, o.Report = []string{"team/empty:1"}, []string{bundle.OnlyImages}, events.Text(&out)
	r := run(t, o)
	if i := r.Manifest.Images[0]; len(i.Layers) > 0 || !strings.Contains(out.String(), "the image has no layers") || strings.Contains(out.String(), "in the base") {
		t.Errorf("%+v\n%s", i, out.String())
	}
}

func digestOfImage(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// A replaced image of the catalog needs upstream's signature too.
func TestRequiredSignatureOfReplacedImage(t *testing.T) {
	t.Parallel()
	u, s, o := signedUpstream(t)
	own := fakesites.Image(t, "amd64", "another pause")
	u.Push(pause, own)
	s.SignImage(u, pause, fakesigstore.ImageSigner)
	flannel := "ghcr.io/flannel-io/flannel:v0.28.4"
	dir, _ := vendorLayout(t, map[string]v1.Image{pause: own, "vendor": fakesites.Image(t, "amd64", "vendor"), flannel: fakesites.Image(t, "amd64", "flannel")})
	for name, c := range map[string]struct {
		image, pin, want string
	}{
		"upstream's own":                {image: ":" + pause + "=" + pause},
		"another":                       {image: ":vendor=" + pause, want: pause + ": the registry has no signature for " + digestOfImage(t, fakesites.Image(t, "amd64", "vendor"))},
		"another, pinned":               {image: ":vendor=" + pause, pin: digestOfImage(t, fakesites.Image(t, "amd64", "vendor")), want: "the registry has no signature for"},
		"what upstream does not sign":   {image: ":" + flannel + "=" + flannel, want: flannel + ": it is not from its registry, and upstream does not sign it"},
		"not signed, but pinned":        {image: ":" + flannel + "=" + flannel, pin: digestOfImage(t, fakesites.Image(t, "amd64", "flannel"))},
		"only an image of the vendor's": {image: ":vendor=registry.example/app:1"},
	} {
		o := o
		o.Images = []string{"oci:" + dir + c.image}
		if c.pin != "" {
			_, name, _ := strings.Cut(c.image, "=")
			o.Pins = []builder.Pin{{Name: name, SHA256: strings.TrimPrefix(c.pin, "sha256:")}}
		}
		_, err := runOne(t.Context(), o)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		o.VerifySignatures = builder.VerifyIfPresent
		r := run(t, o)
		if got := strings.Join(r.Signatures.Missing, "\n"); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: missing %q", name, got)
		}
	}
}

// Two sources with one name and different content are an error, also in one source.
func TestOneNameWithTwoContents(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	const name = "registry.example/app:1"
	a, _ := vendorLayout(t, map[string]v1.Image{name: fakesites.Image(t, "amd64", "a")})
	b, archive := vendorLayout(t, map[string]v1.Image{name: fakesites.Image(t, "amd64", "b")})
	for want, list := range map[string][]string{
		"":                            {"oci:" + b, "oci-archive:" + archive},
		"is also in another --image":  {"oci:" + a, "oci-archive:" + archive},
		"is also in another --image ": {"oci:" + a, "oci:" + b + "=" + name},
	} {
		o := options(t, u)
		o.Images = list
		_, err := runOne(t.Context(), o)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want))) {
			t.Errorf("%v: %v", list, err)
		}
	}
}

// A pod that names an image of an archive by its digest gets that image, and no request is made for it.
// With another digest, the image of the archive is not taken.
func TestPodPinnedToArchive(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	img := fakesites.Image(t, "amd64", "app")
	dir, _ := vendorLayout(t, map[string]v1.Image{"registry.example/app:1": img})
	digest := digestOfImage(t, img)
	pod := func(image string) string {
		path := filepath.Join(t.TempDir(), "pod.yaml")
		if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec:\n  containers:\n  - {name: app, image: "+image+"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, image := range []string{"registry.example/app@" + digest, "registry.example/app:1@" + digest, "registry.example/app:2@" + digest} {
		o := options(t, u)
		o.Images = []string{"oci:" + dir}
		o.Site.Manifests = []builder.Manifest{{Name: "app", Path: pod(image), At: "bundle.yaml:1"}}
		r := run(t, o)
		if r.Complete == "" || !slices.ContainsFunc(r.Manifest.Images, func(i bundle.Image) bool {
			return i.Reference == "registry.example/app@"+digest && i.Target.Digest == digest
		}) {
			t.Errorf("%s: %q", image, r.Complete)
		}
	}
	o := options(t, u)
	o.Images = []string{"oci:" + dir}
	o.Site.Manifests = []builder.Manifest{{Name: "app", Path: pod("registry.example/app:1@sha256:" + strings.Repeat("a", 64)), At: "bundle.yaml:1"}}
	if _, err := runOne(t.Context(), o); err == nil || !strings.Contains(err.Error(), "registry.example/app@sha256:aaaa") || !strings.Contains(err.Error(), "the local sources have registry.example/app:1 with the digest "+digest) {
		t.Errorf("err = %v", err)
	}
}
