package push_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/builder"
	"airlift/builder/fetch"
	"airlift/builder/push"
	"airlift/builder/registry"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/siteregistry"
)

const (
	app  = "docker.io/team/app:v1"
	tool = "docker.io/team/tool:v2"
)

// compressedBy returns the layer as a stock command compressed it.
func compressedBy(t *testing.T, content []byte, command ...string) v1.Layer {
	t.Helper()
	c := exec.Command(rig.Tool(t, command[0]), command[1:]...)
	c.Stdin = bytes.NewReader(content)
	packed, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// build builds a bundle with the images app, an index of two platforms, and tool.
func build(t *testing.T, tool v1.Image, keep bool) *bundle.File {
	t.Helper()
	u := fakesites.New(t)
	u.PushIndex("docker.io/team/app:v1", map[string]v1.Image{"amd64": fakesites.Image(t, "amd64", "app"), "arm64": fakesites.Image(t, "arm64", "app")})
	u.Push("docker.io/team/tool:v2", tool)
	return buildOf(t, u, keep, app, "docker.io/team/tool:v2")
}

// buildOf builds a bundle with images.
func buildOf(t *testing.T, u *fakesites.Upstream, keep bool, images ...string) *bundle.File {
	t.Helper()
	var mirrors []fetch.Mirror
	for _, s := range u.Mirrors() {
		m, err := fetch.ParseMirror(s)
		if err != nil {
			t.Fatal(err)
		}
		mirrors = append(mirrors, m)
	}
	dir := t.TempDir()
	o := builder.Options{
		Target:    builder.Target{Version: "v1.29.15", Arch: "amd64", Only: []string{bundle.OnlyImages}},
		Selection: builder.Selection{Images: images, KeepCompressed: keep},
		Network:   builder.Network{CacheDir: filepath.Join(dir, "cache"), Mirrors: mirrors},
		Destination: builder.Destination{Output: filepath.Join(dir, "more"), Level: bundle.Fastest,
			Executables: bundle.Executables{Launcher: fakesites.Executable(t, elf.EM_X86_64), Installer: fakesites.Executable(t, elf.EM_X86_64)}},
	}
	if _, err := builder.Run(t.Context(), []builder.Options{o}); err != nil {
		t.Fatalf("%v\nhint: %s", err, fault.Hint(err))
	}
	f, err := bundle.Open(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// client returns a client with the CA of r, and with the account of r if auth is set.
func client(t *testing.T, r *siteregistry.Registry, auth string) *registry.Client {
	t.Helper()
	for _, name := range []string{"DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"} {
		t.Setenv(name, t.TempDir())
	}
	t.Setenv("REGISTRY_AUTH_FILE", "")
	trust, err := fetch.NewTrust([]string{r.CA})
	if err != nil {
		t.Fatal(err)
	}
	mirrors, err := fetch.NewMirrors(trust.Transport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := registry.New(fetch.New(nil, mirrors), mirrors, "")
	if auth == "" {
		return c
	}
	c.AuthFile = filepath.Join(t.TempDir(), "auth.json")
	text, err := json.Marshal(map[string]any{"auths": map[string]any{r.Host: map[string]string{"username": siteregistry.User, "password": siteregistry.Password}}})
	if err == nil {
		err = os.WriteFile(c.AuthFile, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// skopeo runs skopeo, which reads the image of amd64 by its own code.
func skopeo(t *testing.T, r *siteregistry.Registry, args ...string) []byte {
	t.Helper()
	certs := t.TempDir()
	ca, err := os.ReadFile(r.CA)
	if err == nil {
		err = os.WriteFile(filepath.Join(certs, "ca.crt"), ca, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--cert-dir", certs}
	if args[0] == "copy" {
		flags = []string{"--src-cert-dir", certs}
	}
	if strings.Contains(strings.Join(args, " "), "docker://") {
		flags = append(flags, map[bool]string{true: "--src-creds", false: "--creds"}[args[0] == "copy"], siteregistry.User+":"+siteregistry.Password)
	}
	c := exec.Command(rig.Tool(t, "skopeo"), slices.Concat([]string{"--override-arch", "amd64", args[0]}, flags, args[1:])...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("skopeo %q: %v\n%s", args, err, stderr.String())
	}
	return out
}

// The reference implementation of a registry refuses an index without all manifests, and
// skopeo reads what was pushed and compares every digest.
func TestPush(t *testing.T) {
	for _, auth := range []string{"basic", "token"} {
		t.Run(auth, func(t *testing.T) {
			r := siteregistry.Start(t, siteregistry.Options{Auth: auth})
			f := build(t, fakesites.Image(t, "amd64", "tool"), false)
			m, err := f.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			if n, kept, all := m.Reproduced(); n != all || all != 3 || kept != 0 {
				t.Errorf("%d of %d layers can be reproduced, %d are kept", n, all, kept)
			}
			o := push.Options{File: f, Target: r.Host + "/team", Registry: client(t, r, auth)}
			result, err := push.Run(t.Context(), o)
			if err != nil {
				t.Fatalf("%v\nhint: %s\n%s", err, fault.Hint(err), r.Log())
			}
			if result.Sent != 4 || len(result.Images) != 2 {
				t.Errorf("result: %+v", result)
			}
			for n, i := range m.Images {
				pushed := result.Images[n]
				if want := r.Host + "/team/" + i.Reference; pushed.Pushed != want || pushed.Upstream != i.Target.Digest || pushed.Digest != i.Manifest.Digest {
					t.Errorf("pushed: %+v, want %s", pushed, want)
				}
				var seen struct{ Digest string }
				if err := json.Unmarshal(skopeo(t, r, "inspect", "docker://"+pushed.Pushed), &seen); err != nil || seen.Digest != i.Manifest.Digest {
					t.Errorf("skopeo inspect: digest %s, %v", seen.Digest, err)
				}
				skopeo(t, r, "copy", "docker://"+pushed.Pushed, "dir:"+t.TempDir())
				skopeo(t, r, "copy", "docker://"+r.Host+"/team/"+strings.Split(i.Reference, ":")[0]+"@"+i.Manifest.Digest, "dir:"+t.TempDir())
			}
			// Nothing is sent twice.
			again, err := push.Run(t.Context(), o)
			if err != nil || again.Sent != 0 || again.Present != 4 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// The indexes between an image's target and its manifest are pushed too. A registry that refuses one of
// them gets the manifest.
func TestPushOfIndexInIndex(t *testing.T) {
	r := siteregistry.Start(t, siteregistry.Options{})
	d := fakesites.Documents{}
	p := ocispec.Platform{OS: "linux", Architecture: "amd64"}
	amd64 := d.AddManifest(ocispec.MediaTypeImageManifest, "app", p)
	arm64 := amd64
	amd64.Platform, arm64.Platform = &p, &ocispec.Platform{OS: "linux", Architecture: "arm64"}
	arm64.Digest = digest.FromString("not in the bundle")
	for name, inner := range map[string]ocispec.Descriptor{
		"whole":      d.AddIndex(ocispec.MediaTypeImageIndex, amd64),
		"incomplete": d.AddIndex(ocispec.MediaTypeImageIndex, amd64, arm64),
	} {
		target := d.AddIndex(ocispec.MediaTypeImageIndex, d.AddIndex(ocispec.MediaTypeImageIndex, inner))
		dir := filepath.Join(t.TempDir(), name)
		d.Layout(t, dir, target)
		f := buildOf(t, fakesites.New(t), false, "oci:"+dir+"=registry.example/"+name+":1")
		if m, err := f.Manifest(); err != nil || len(m.Images[0].Indexes) != 2 || f.Verify(t.Context(), nil) != nil {
			t.Fatalf("%+v, %v", m.Images, err)
		}
		result, err := push.Run(t.Context(), push.Options{File: f, Target: r.Host + "/team", Registry: client(t, r, "")})
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Log())
		}
		want := target.Digest
		if name == "incomplete" {
			want = amd64.Digest
		}
		if got := result.Images[0]; got.Digest != want.String() || got.Upstream != target.Digest.String() {
			t.Errorf("%s: %+v", name, got)
		}
		skopeo(t, r, "copy", "docker://"+r.Host+"/team/registry.example/"+name+"@"+amd64.Digest.String(), "dir:"+t.TempDir()) // it reads no index in an index
	}
}

func TestPushNeedsAnAccount(t *testing.T) {
	r := siteregistry.Start(t, siteregistry.Options{Auth: "token"})
	f := build(t, fakesites.Image(t, "amd64", "tool"), false)
	_, err := push.Run(t.Context(), push.Options{File: f, Target: r.Host + "/team", Registry: client(t, r, "")})
	if err == nil || !strings.Contains(fault.Hint(err), "docker login "+r.Host) {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
}

// Stock gzip has an encoder that no library has. Its layers are pushed only if they are kept.
func TestPushOfLayersThatNoEncoderGives(t *testing.T) {
	r := siteregistry.Start(t, siteregistry.Options{Auth: "token"})
	content := bytes.Repeat(fakesites.LayerTar(t, "gzipped"), 1)
	img := fakesites.ImageOf(t, "amd64", compressedBy(t, content, "gzip", "-7", "--rsyncable"))
	lean, kept := build(t, img, false), build(t, img, true)
	o := push.Options{File: lean, Target: r.Host + "/team", Registry: client(t, r, "token")}
	_, err := push.Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), tool) || strings.Contains(err.Error(), app) || !strings.Contains(fault.Hint(err), "--keep-compressed-layers") {
		t.Fatalf("err = %v, hint = %q", err, fault.Hint(err))
	}
	if strings.Contains(r.Log(), "PATCH") {
		t.Errorf("something was pushed:\n%s", r.Log())
	}
	o.File = kept
	result, err := push.Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\nhint: %s", err, fault.Hint(err))
	}
	skopeo(t, r, "copy", "docker://"+result.Images[1].Pushed, "dir:"+t.TempDir())
	if err := kept.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	// The registry has the layer now.
	o.File = lean
	if _, err := push.Run(t.Context(), o); err != nil {
		t.Error(err)
	}
}
