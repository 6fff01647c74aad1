package installer

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/scripts/rig"
)

// imageBundle collects the images of a bundle.
type imageBundle struct {
	manifest bundle.Manifest
	content  map[string][]byte
}

func newImageBundle(only ...string) *imageBundle {
	return &imageBundle{
		manifest: bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.37.1", CNI: "none", Only: only},
		content:  map[string][]byte{},
	}
}

// layerTar returns a layer with one file.
func layerTar(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (b *imageBundle) blob(mediaType string, data []byte) bundle.Descriptor {
	d := "sha256:" + sum(data)
	if name := bundle.BlobName(d); b.content[name] == nil {
		b.content[name] = data
		b.manifest.Entries = append(b.manifest.Entries, bundle.Entry{Name: name, Size: int64(len(data)), SHA256: sum(data)})
	}
	return bundle.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// add adds an image. The first of its layers that are in base are left out.
func (b *imageBundle) add(t *testing.T, name, ref string, base *Bundle, layers ...[]byte) {
	t.Helper()
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	img := bundle.Image{Name: name, Reference: ref}
	cfg := ocispec.Image{Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"}, RootFS: ocispec.RootFS{Type: "layers"}}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, l := range layers {
		id := "sha256:" + sum(l)
		img.Layers = append(img.Layers, bundle.Layer{DiffID: id, Size: int64(len(l))})
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, digest.Digest(id))
		manifest.Layers = append(manifest.Layers, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.Digest(id), Size: int64(len(l))})
	}
	cfg.Config.Cmd = []string{ref}
	img.Config = b.blob(ocispec.MediaTypeImageConfig, encode(cfg))
	manifest.Config = ocispec.Descriptor{MediaType: img.Config.MediaType, Digest: digest.Digest(img.Config.Digest), Size: img.Config.Size}
	img.Manifest = b.blob(ocispec.MediaTypeImageManifest, encode(manifest))
	img.Target = img.Manifest
	for i, l := range layers {
		if base != nil {
			if _, has := base.manifest.Entry(bundle.BlobName(img.Layers[i].DiffID)); has {
				b.manifest.Base.Layers = append(b.manifest.Base.Layers, img.Layers[i].DiffID)
				continue
			}
		}
		b.blob("", l)
	}
	b.manifest.Images = append(b.manifest.Images, img)
}

func (b *imageBundle) write(t *testing.T, name string) *Bundle {
	t.Helper()
	if b.manifest.Base != nil {
		slices.Sort(b.manifest.Base.Layers)
		b.manifest.Base.Layers = slices.Compact(b.manifest.Base.Layers)
	}
	return writeBundle(t, name, []byte("installer"), &b.manifest, b.content)
}

// aNode returns the root directory of a node that Airlift installed, whose kubelet uses a real
// containerd.
func aNode(t *testing.T) (root string) {
	t.Helper()
	rig.Root(t) // to run a containerd
	dir, err := os.MkdirTemp("/var/tmp", "airlift-import-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	containerd := rig.Component(t, "v1.29.15", "containerd")
	socket := filepath.Join(dir, "c.sock")
	configuration := fmt.Sprintf(`version = 3
root = %q
state = %q
[grpc]
address = %q
[ttrpc]
address = %q
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.internal.v1.opt"]
path = %q
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.runtime".cni]
conf_dir = %q
`, filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket, socket+".ttrpc", filepath.Join(dir, "opt"), filepath.Join(dir, "net.d"))
	cfg := filepath.Join(dir, "config.toml")
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(cfg, configuration, 0o600)
	cmd := exec.Command(containerd, "--config", cfg)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(containerd)+":"+filepath.Dir(rig.Component(t, "v1.29.15", "runc"))+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	s, err := store.Connect(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	root = filepath.Join(dir, "host")
	write(filepath.Join(root, kubeletConf), "kubelet", 0o600)
	write(filepath.Join(root, config.KubeletConfigFile), "containerRuntimeEndpoint: unix:///nonexistent\n", 0o600)
	write(filepath.Join(root, config.KubeletFlagsFile), `KUBELET_KUBEADM_ARGS="--a=b --container-runtime-endpoint=unix://`+socket+" --c=d\"\n", 0o600)
	write(filepath.Join(root, socket), "", 0o600) // the host's paths are below root, but the socket is not
	write(filepath.Join(root, "usr/local/bin/kubelet"), "#!/bin/sh\necho Kubernetes v1.36.2\n", 0o755)
	if _, err := hostOn(t, root).WriteFile("/etc/some", []byte("x"), 0o644); err != nil { // as init does
		t.Fatal(err)
	}
	return root
}

// runImport imports a bundle.
func runImport(t *testing.T, root string, b *Bundle, o ImportOptions) (output string, imported []string, err error) {
	t.Helper()
	var out strings.Builder
	if o.Base != nil {
		if err := b.AcceptsBase(o.Base); err != nil {
			return "", nil, err
		}
	}
	i := NewImport(b, o, hostOn(t, root), &Console{Out: &out})
	defer i.Close()
	err = i.Run(t.Context())
	return out.String(), i.Imported(), err
}

func withImages(t *testing.T, root string, b *Bundle, keep []*Bundle, do func(*NodeImages)) {
	t.Helper()
	var out strings.Builder
	n, err := OpenNodeImages(t.Context(), b, keep, hostOn(t, root), &Console{Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	do(n)
}

func namesOf(list []NodeImage) (names []string) {
	for _, i := range list {
		names = append(names, i.image.Name())
	}
	return names
}

func wantFault(t *testing.T, what string, err error, code fault.Code, texts ...string) {
	t.Helper()
	if err == nil || fault.ExitCode(err) != code {
		t.Errorf("%s: exit code %d, want %d: %v", what, fault.ExitCode(err), code, err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error()+"\nhint: "+fault.Hint(err), text) {
			t.Errorf("%s: the error does not contain %q: %v\nhint: %s", what, text, err, fault.Hint(err))
		}
	}
}

const (
	oldApp = "site.example/app:1"
	newApp = "site.example/app:2"
	other  = "site.example/other:1"
)

// importBundles returns a full bundle, and two that were built on it: of one image whose lower
// layer is that of an image in the full bundle, and of one that has this layer on top of another.
func importBundles(t *testing.T) (full, onTop, moved *Bundle) {
	t.Helper()
	// Incompressible, and larger than two pieces of the payload.
	content := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	lower, upper := layerTar(t, "lower", string(content)), layerTar(t, "upper", "upper")
	f := newImageBundle()
	f.add(t, "pause", "registry.k8s.io/pause:3.10", nil, layerTar(t, "pause", "pause"))
	f.add(t, oldApp, oldApp, nil, lower, layerTar(t, "old", "old"))
	full = f.write(t, "install")
	later := func(ref string, layers ...[]byte) *Bundle {
		b := newImageBundle(bundle.OnlyImages)
		b.manifest.Base = &bundle.Base{ManifestSHA256: full.id()}
		b.add(t, ref, ref, full, layers...)
		return b.write(t, "more")
	}
	return full, later(newApp, lower, upper), later(other, upper, lower)
}

// A bundle that replaces an image of Kubernetes is imported with a warning.
func TestImportOfANameOfKubernetes(t *testing.T) {
	root := aNode(t)
	b := newImageBundle(bundle.OnlyImages)
	for _, ref := range []string{"registry.k8s.io/kube-proxy:v1.36.2", newApp} {
		b.add(t, ref, ref, nil, layerTar(t, "own", "own"))
	}
	more := b.write(t, "more")
	const warning = "this file has its own image registry.k8s.io/kube-proxy:v1.36.2"
	if out, _, err := runImport(t, root, more, ImportOptions{}); err != nil || strings.Count(out, "this file has its own image") != 1 || !strings.Contains(out, warning) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err := runImport(t, root, more, ImportOptions{}); err != nil || strings.Contains(out, warning) {
		t.Errorf("again: %v\n%s", err, out)
	}
}

func TestImportWithoutLayersOfTheBase(t *testing.T) {
	root := aNode(t)
	full, onTop, moved := importBundles(t)
	layer := onTop.manifest.Base.Layers[0]

	_, _, err := runImport(t, root, onTop, ImportOptions{})
	wantFault(t, "without the base", err, fault.Preflight, "image "+newApp, layer, onTop.file.Path()+" import --base FILE", full.id())
	_, _, err = runImport(t, root, onTop, ImportOptions{Base: moved})
	wantFault(t, "with another base", err, fault.Usage, moved.file.Path(), moved.id(), full.id())
	_, _, err = runImport(t, root, full, ImportOptions{Base: full})
	wantFault(t, "a base for a bundle without", err, fault.Usage, "--base")
	if ledger := hostOn(t, root).ImageNames(); len(ledger) > 0 {
		t.Errorf("refused imports changed %v", ledger)
	}

	out, imported, err := runImport(t, root, moved, ImportOptions{Base: full})
	if err != nil || !slices.Equal(imported, []string{other}) {
		t.Fatalf("imported %q, %v", imported, err)
	}
	for _, want := range []string{"1 layer from " + full.file.Path(), "1 image imported.", "warning: this node has Kubernetes v1.36.2, and this file was built for v1.37.1"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}

	out, imported, err = runImport(t, root, full, ImportOptions{})
	if err != nil || !slices.Equal(imported, []string{oldApp}) || !strings.Contains(out, "this file also has 1 image of Kubernetes") {
		t.Fatalf("imported %q, %v\n%s", imported, err, out)
	}
	// Now the lower layer is on this node.
	if _, imported, err = runImport(t, root, onTop, ImportOptions{}); err != nil || !slices.Equal(imported, []string{newApp}) {
		t.Fatalf("imported %q, %v", imported, err)
	}
	out, imported, err = runImport(t, root, onTop, ImportOptions{})
	if err != nil || len(imported) > 0 || !strings.Contains(out, "Nothing to do: this node has all images of this file (1).") {
		t.Errorf("the second run imported %q, %v\n%s", imported, err, out)
	}

	withImages(t, root, onTop, nil, func(n *NodeImages) {
		list, err := n.List(t.Context())
		if err != nil || !slices.Equal(namesOf(list), []string{oldApp, newApp, other}) {
			t.Errorf("%q, %v", namesOf(list), err)
		}
		for _, i := range list {
			if !i.Pinned || i.Imported != store.Site || i.Containers != 0 || i.InBundle != (i.image.Name() == newApp) {
				t.Errorf("%+v", i)
			}
		}
	})
}

func TestPruneUnpinAndReset(t *testing.T) {
	root := aNode(t)
	full, onTop, moved := importBundles(t)
	for _, b := range []*Bundle{full, onTop, moved} {
		o := ImportOptions{}
		if b == moved {
			o.Base = full
		}
		if _, _, err := runImport(t, root, b, o); err != nil {
			t.Fatal(err)
		}
	}
	names := func() int { return len(hostOn(t, root).ImageNames()) }
	if names() != 9 { // three of each image
		t.Errorf("the ledger has %d names", names())
	}

	withImages(t, root, onTop, []*Bundle{full}, func(n *NodeImages) {
		for _, c := range []struct {
			names, want []string
		}{{nil, []string{other}}, {[]string{oldApp, oldApp}, []string{oldApp}}} {
			list, err := n.Unpinnable(t.Context(), c.names)
			if err != nil || !slices.Equal(namesOf(list), c.want) {
				t.Errorf("unpinnable of %q: %q, %v", c.names, namesOf(list), err)
			}
			if err := n.Unpin(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			if list, err := n.Unpinnable(t.Context(), c.names); err != nil || len(list) > 0 {
				t.Errorf("after unpin: %q, %v", namesOf(list), err)
			}
		}
		_, err := n.Unpinnable(t.Context(), []string{newApp, "site.example/none"})
		wantFault(t, "unpin of no image", err, fault.Usage, `"site.example/none" is not in containerd`)
	})

	withImages(t, root, onTop, []*Bundle{full}, func(n *NodeImages) {
		list, err := n.Prunable(t.Context())
		if err != nil || !slices.Equal(namesOf(list), []string{other}) {
			t.Errorf("prunable with the full bundle kept: %q, %v", namesOf(list), err)
		}
		if err := n.AskCluster(t.Context(), filepath.Join(root, "none.conf")); err != nil {
			t.Errorf("with the full bundle kept, the cluster is not necessary: %v", err)
		}
	})
	withImages(t, root, onTop, nil, func(n *NodeImages) {
		wantFault(t, "prune that knows nothing of the cluster", n.AskCluster(t.Context(), filepath.Join(root, "none.conf")), fault.Preflight, "none.conf")
		n.needs([]string{"--image", "not an image", oldApp})
		list, err := n.Prunable(t.Context())
		if err != nil || !slices.Equal(namesOf(list), []string{other}) {
			t.Errorf("prunable while a workload names an image: %q, %v", namesOf(list), err)
		}
		all, err := n.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all { // by tag and digest, as in a pod
			if i.image.Name() == oldApp {
				n.needs([]string{oldApp + "@" + i.Digest})
			}
		}
		if list, err = n.Prunable(t.Context()); err != nil || !slices.Equal(namesOf(list), []string{other}) {
			t.Errorf("prunable while a workload names a digest: %q, %v", namesOf(list), err)
		}
		n.needs(nil)
		list, err = n.Prunable(t.Context())
		if err != nil || !slices.Equal(namesOf(list), []string{oldApp, other}) {
			t.Fatalf("prunable: %q, %v", namesOf(list), err)
		}
		if err := n.Prune(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if list, err := n.List(t.Context()); err != nil || !slices.Equal(namesOf(list), []string{newApp}) {
			t.Errorf("after prune: %q, %v", namesOf(list), err)
		}
	})
	if names() != 3 {
		t.Errorf("the ledger has %d names after prune", names())
	}
	// The layer of the pruned image is still that of the other one.
	if out, imported, err := runImport(t, root, onTop, ImportOptions{}); err != nil || len(imported) > 0 {
		t.Errorf("imported %q, %v\n%s", imported, err, out)
	}

	var out strings.Builder
	r := newReset(config.Reset{}, "", newMachine(hostOn(t, root), &Console{Out: &out}))
	if err := r.images.restore(t.Context()); err != nil || len(r.images.left) > 0 {
		t.Fatalf("reset: %v, left %q", err, r.images.left)
	}
	withImages(t, root, onTop, nil, func(n *NodeImages) {
		if list, err := n.List(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("after reset: %q, %v", namesOf(list), err)
		}
	})
}

func TestImportRefusesAHostThatIsNoNode(t *testing.T) {
	full, _, _ := importBundles(t)
	root := t.TempDir()
	_, _, err := runImport(t, root, full, ImportOptions{})
	wantFault(t, "no node", err, fault.Preflight, "not a node", "./FILE join")
}

func TestKubeletSocket(t *testing.T) {
	for name, c := range map[string]struct{ flags, instance, file, want string }{
		"default":       {"", "", "", config.ContainerdSocket},
		"flag":          {`KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/a.sock --node-ip=1.2.3.4"`, "", "containerRuntimeEndpoint: unix:///run/b.sock", "/run/a.sock"},
		"last flag":     {`KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/a.sock --container-runtime-endpoint=/run/z.sock"`, "", "", "/run/z.sock"},
		"configuration": {`KUBELET_KUBEADM_ARGS="--node-ip=1.2.3.4"`, "containerRuntimeEndpoint: unix:///run/c.sock", "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/b.sock", "/run/b.sock"},
		"instance":      {"", "containerRuntimeEndpoint: \"unix:///run/c.sock\"\n", "kind: KubeletConfiguration", "/run/c.sock"},
	} {
		root := t.TempDir()
		for path, text := range map[string]string{config.KubeletFlagsFile: c.flags, config.KubeletDir + "/instance-config.yaml": c.instance, config.KubeletConfigFile: c.file} {
			if text == "" {
				continue
			}
			full := filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h, err := host.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := newMachine(h, &Console{}).kubeletSocket(); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// TestImportOfADamagedBase: a flipped byte in the base is found before anything changes.
func TestImportOfADamagedBase(t *testing.T) {
	root := aNode(t)
	full, onTop, _ := importBundles(t)
	path := full.file.Path()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[full.file.PayloadOffset()+full.file.PayloadSize()/2] ^= 1 // in the lower layer
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, data, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(damaged)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	base, err := OpenBundle(f)
	if err != nil {
		t.Fatal(err)
	}
	base.CheckFile(t.Context())
	defer base.Close()
	_, _, err = runImport(t, root, onTop, ImportOptions{Base: base})
	wantFault(t, "a damaged base", err, fault.Bundle, damaged)
	if ledger := hostOn(t, root).ImageNames(); len(ledger) > 0 {
		t.Errorf("the import changed %v", ledger)
	}

	// Each piece is compared again when it is read.
	unchecked, err := OpenBundle(f)
	if err != nil {
		t.Fatal(err)
	}
	_, imported, err := runImport(t, root, onTop, ImportOptions{Base: unchecked})
	wantFault(t, "a damaged base that was not checked", err, fault.Bundle, damaged)
	withImages(t, root, onTop, nil, func(n *NodeImages) {
		if list, err := n.List(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("after the error: %q, %v; the run was to import %q", namesOf(list), err, imported)
		}
	})
	if _, _, err := runImport(t, root, onTop, ImportOptions{Base: full}); err != nil {
		t.Errorf("after the error, with a good base: %v", err)
	}
}

// forged returns a bundle with the manifest of b and other contents, whose digests all match.
func forged(t *testing.T, b *Bundle, content map[string][]byte) *Bundle {
	t.Helper()
	data, err := os.ReadFile(b.file.Path())
	if err != nil {
		t.Fatal(err)
	}
	trailer, err := head.ReadAt(bytes.NewReader(data), int64(len(data)), b.file.Path())
	if err != nil {
		t.Fatal(err)
	}
	var images bytes.Buffer
	z, err := zstd.NewWriter(&images)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, e := range b.manifest.Entries {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.Name, Mode: 0o644, Size: e.Size}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content[e.Name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	begin := int(trailer.PayloadOffset)
	payload := slices.Concat(data[begin:begin+int(trailer.HeadSize)], images.Bytes())
	var digester head.Digester
	if _, err := digester.Write(payload); err != nil {
		t.Fatal(err)
	}
	digests, sum := digester.Encode()
	trailer.PayloadSize, trailer.DigestsSHA256 = uint64(len(payload)), sum
	path := filepath.Join(t.TempDir(), "forged")
	all := slices.Concat(data[:begin-head.HeaderSize], head.Header{FileSize: trailer.FileSize()}.Encode(), payload, digests, trailer.Encode())
	if err := os.WriteFile(path, all, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Check(t.Context(), nil); err != nil {
		t.Fatal("the digests of the forged file: ", err)
	}
	forged, err := OpenBundle(f)
	if err != nil {
		t.Fatal(err)
	}
	return forged
}

// TestImportOfAForgedBase: a file with the manifest of the base and another layer is a valid file,
// but the layer is not that of the image.
func TestImportOfAForgedBase(t *testing.T) {
	root := aNode(t)
	content := make([]byte, 5<<20) // too large for the importer's memory, so it is unpacked while it is read
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	lower := layerTar(t, "lower", string(content))
	content[len(content)/2] ^= 1
	changed := layerTar(t, "lower", string(content))

	f := newImageBundle()
	f.add(t, oldApp, oldApp, nil, lower)
	full := f.write(t, "install")
	b := newImageBundle(bundle.OnlyImages)
	b.manifest.Base = &bundle.Base{ManifestSHA256: full.id()}
	b.add(t, newApp, newApp, full, lower, layerTar(t, "upper", "upper"))
	more := b.write(t, "more")

	f.content[bundle.BlobName("sha256:"+sum(lower))] = changed
	base := forged(t, full, f.content)
	if base.id() != full.id() {
		t.Fatal("the forged file has another manifest")
	}
	_, _, err := runImport(t, root, more, ImportOptions{Base: base})
	wantFault(t, "a forged base", err, fault.Bundle, base.file.Path(), "sha256:"+sum(lower), "content has digest sha256:"+sum(changed))
	withImages(t, root, more, nil, func(n *NodeImages) {
		if list, err := n.List(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("after the error: %q, %v", namesOf(list), err)
		}
	})
	if _, imported, err := runImport(t, root, more, ImportOptions{Base: full}); err != nil || !slices.Equal(imported, []string{newApp}) {
		t.Errorf("with the true base: imported %q, %v", imported, err)
	}
}
