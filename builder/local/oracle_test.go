package local_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	machine "airlift/scripts/fixtures/rig"
)

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// ociImage is an image of OCI media types. Skopeo reads no others in a layout.
func ociImage(t *testing.T) v1.Image {
	t.Helper()
	original := fakesites.Image(t, "amd64", "app")
	layers, err := original.Layers()
	if err != nil {
		t.Fatal(err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range layers {
		if img, err = mutate.Append(img, mutate.Addendum{Layer: l, MediaType: types.OCILayer}); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := original.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	return img
}

// Layouts and archives that skopeo writes, and the digests that skopeo computes.
func TestSkopeo(t *testing.T) {
	skopeo := machine.Tool(t, "skopeo")
	r := newRig(t)
	img := ociImage(t)
	source := "oci:" + r.layoutWith("source", map[string]any{"v1": img}) + ":v1"
	for _, to := range []string{"oci:" + r.path("layout") + ":v1", "oci-archive:" + r.path("oci.tar") + ":registry.example/app:1",
		"oci:" + r.path("layout") + ":registry.example/other:1",
		"docker-archive:" + r.path("docker.tar") + ":registry.example/app:1"} {
		command(t, skopeo, "--insecure-policy", "copy", "--quiet", source, to)
		fresh := newRig(t)
		name := ""
		if strings.HasSuffix(to, ":v1") {
			name = "=registry.example/app:1"
		}
		got := fresh.one("amd64", to+name)
		fresh.sameLayers(got, img)
		if strings.HasPrefix(to, "docker") {
			continue // it has no manifest
		}
		if want := command(t, skopeo, "inspect", "--format", "{{.Digest}}", to); got.Target.Digest != want || want != digestOf(t, img) {
			t.Errorf("%s: digest %s, skopeo's is %s", to, got.Target.Digest, want)
		}
	}
	// Skopeo refuses the same damage.
	blobs, err := filepath.Glob(filepath.Join(r.path("layout"), "blobs", "sha256", "*"))
	if err != nil || len(blobs) != 4 {
		t.Fatalf("%d blobs, %v", len(blobs), err)
	}
	for _, blob := range blobs {
		good, err := os.ReadFile(blob)
		if err != nil {
			t.Fatal(err)
		}
		bad := append([]byte{good[0] ^ 1}, good[1:]...)
		if err := os.WriteFile(blob, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		from := "oci:" + r.path("layout") + ":v1"
		skopeoErr := exec.Command(skopeo, "--insecure-policy", "copy", from, "dir:"+r.path("copy")).Run()
		_, err = newRig(t).read("amd64", from+"=registry.example/app:1")
		if err == nil || !strings.Contains(err.Error(), blob) || skopeoErr == nil {
			t.Errorf("%s: %v; skopeo: %v", blob, err, skopeoErr)
		}
		if err := os.WriteFile(blob, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A real containerd imports an image of two platforms, and ctr exports it.
func TestContainerd(t *testing.T) {
	machine.Root(t)
	ctr := machine.Component(t, "v1.37.1", "ctr")
	r := newRig(t)
	socket := startContainerd(t, machine.Component(t, "v1.37.1", "containerd"))
	t.Setenv("CONTAINERD_ADDRESS", socket)
	t.Setenv("PATH", filepath.Dir(ctr)+":"+os.Getenv("PATH"))
	idx := indexOf(t, "app", "amd64", "arm64")
	file := r.tarOf(r.layoutWith("layout", map[string]any{"registry.example/app:1": idx}), "app.tar", compressors["app.tar"])
	command(t, ctr, "--namespace", "k8s.io", "images", "import", "--no-unpack", "--all-platforms", file)
	command(t, ctr, "--namespace", "k8s.io", "images", "tag", "registry.example/app:1", "docker.io/library/app:latest")

	t.Setenv("CONTAINERD_NAMESPACE", "k8s.io")
	for source, reference := range map[string]string{
		"containerd:registry.example/app:1": "registry.example/app:1",
		"containerd:app":                    "docker.io/library/app:latest",
		"containerd:app=app:2":              "docker.io/library/app:2",
	} {
		for _, arch := range []string{"amd64", "arm64"} {
			fresh := newRig(t)
			got := fresh.one(arch, source)
			want := fakesites.Image(t, arch, "app")
			if got.Reference != reference || got.Manifest.Digest != digestOf(t, want) {
				t.Errorf("%s: %s, manifest %s", source, got.Reference, got.Manifest.Digest)
			}
			fresh.sameLayers(got, want)
		}
	}
	_, err := r.read("amd64", "containerd:none:1")
	if err == nil || !strings.Contains(err.Error(), "not found") || !strings.Contains(fault.Hint(err), "k8s.io") {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
	// ctr keeps the index, and leaves out the other platforms.
	if got := r.one("amd64", "containerd:app"); got.Target.Digest != digestOf(t, idx) {
		t.Errorf("target %s, want %s", got.Target.Digest, digestOf(t, idx))
	}
	// What ctr exports by hand is an OCI archive, also one that docker load reads.
	hand := r.path("hand.tar")
	command(t, ctr, "images", "export", "--local", hand, "registry.example/app:1")
	if got := r.one("amd64", "oci-archive:"+hand); got.Target.Digest != digestOf(t, idx) || got.Reference != "registry.example/app:1" {
		t.Errorf("%+v", got)
	}
	if got := r.one("amd64", "docker-archive:"+hand+":registry.example/app:1"); got.Target.Digest != digestOf(t, idx) {
		t.Errorf("%+v", got)
	}
	_, err = newRig(t).read("arm64", "oci-archive:"+hand)
	if err == nil || !strings.Contains(err.Error(), "is missing") || !strings.Contains(fault.Hint(err), "--platform linux/arm64") {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
}

// startContainerd starts a containerd with its own directories and returns its socket.
func startContainerd(t *testing.T, path string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "airlift-local-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "c.sock")
	config := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri', 'io.containerd.nri.v1.nri']\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n[plugins.'io.containerd.internal.v1.opt']\npath = %q\n",
		dir+"/root", dir+"/state", socket, socket+".ttrpc", dir+"/opt")
	if err := os.WriteFile(dir+"/config.toml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, path, "--config", dir+"/config.toml")
	var log strings.Builder
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = c.Wait() })
	for range 600 {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	_ = c.Wait()
	t.Fatalf("containerd has no socket:\n%s", log.String())
	return ""
}
