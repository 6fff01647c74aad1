package site

import (
	"archive/tar"
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/registry/hosts"
	"airlift/installer/registry/images"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testbundle"
	"airlift/scripts/fixtures/testhost"
)

// runImport imports a bundle.
func runImport(t *testing.T, root string, b *payload.Bundle, o ImportOptions) (output string, imported []string, err error) {
	t.Helper()
	var out strings.Builder
	if o.Base != nil {
		if err := b.AcceptsBase(o.Base); err != nil {
			return "", nil, err
		}
	}
	i := NewImport(b, o, testhost.Open(t, root), &workflow.Console{Out: &out})
	defer i.Close()
	err = i.Run(t.Context())
	return out.String(), i.Imported(), err
}

func withImages(t *testing.T, root string, b *payload.Bundle, keep []*payload.Bundle, do func(*NodeImages)) {
	t.Helper()
	var out strings.Builder
	n, err := OpenNodeImages(t.Context(), b, keep, testhost.Open(t, root), &workflow.Console{Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	do(n)
}

// wantUnserved prunes on a node that uses an embedded registry: what no control plane serves stays, unless that is wanted.
func wantUnserved(t *testing.T, n *NodeImages, served, unserved string) {
	t.Helper()
	timer := n.Host.Path(hosts.Timer.UnitPath())
	if err := errors.Join(os.MkdirAll(filepath.Dir(timer), 0o755), os.WriteFile(timer, nil, 0o644), n.Host.Records().SetOwnsRuntime()); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(timer)
	if list, err := n.Prunable(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("while no control plane answers: %q, %v", namesOf(list), err)
	}
	all, err := n.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.image.Name() == served {
			n.served = append(n.served, images.Served{Reference: served, ID: i.ID, Digest: i.Digest, Complete: true})
		}
	}
	n.asked = true
	if list, err := n.Prunable(t.Context()); err != nil || !slices.Equal(namesOf(list), []string{served}) || !*list[0].Served {
		t.Errorf("with an image that is served: %q, %v", namesOf(list), err)
	}
	n.Unserved = true
	if list, err := n.Prunable(t.Context()); err != nil || !slices.Equal(namesOf(list), []string{served, unserved}) {
		t.Errorf("with --unserved: %q, %v", namesOf(list), err)
	}
	n.Unserved, n.asked, n.served = false, false, nil
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

// importBundles returns a full bundle, and two that were built on it: one with an image whose lower
// layer is in an image of the full bundle, and one with an image that has this layer on top of
// another layer.
func importBundles(t *testing.T) (full, onTop, moved *payload.Bundle) {
	t.Helper()
	// Incompressible, and larger than two pieces of the payload.
	content := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	lower, upper := testbundle.Layer(t, "lower", string(content)), testbundle.Layer(t, "upper", "upper")
	f := testbundle.NewImages()
	f.Add(t, "pause", "registry.k8s.io/pause:3.10", nil, testbundle.Layer(t, "pause", "pause"))
	f.Add(t, oldApp, oldApp, nil, lower, testbundle.Layer(t, "old", "old"))
	full = f.Write(t, "install")
	later := func(ref string, layers ...[]byte) *payload.Bundle {
		b := testbundle.NewImages(bundle.OnlyImages)
		b.Manifest.Base = &bundle.Base{ManifestSHA256: full.ID()}
		b.Add(t, ref, ref, full, layers...)
		return b.Write(t, "more")
	}
	return full, later(newApp, lower, upper), later(other, upper, lower)
}

// A bundle that replaces an image of Kubernetes is imported with a warning.
func TestImportOfANameOfKubernetes(t *testing.T) {
	root := testhost.Node(t)
	b := testbundle.NewImages(bundle.OnlyImages)
	for _, ref := range []string{"registry.k8s.io/kube-proxy:v1.36.2", newApp} {
		b.Add(t, ref, ref, nil, testbundle.Layer(t, "own", "own"))
	}
	more := b.Write(t, "more")
	const warning = "this file has its own image registry.k8s.io/kube-proxy:v1.36.2"
	if out, _, err := runImport(t, root, more, ImportOptions{}); err != nil || strings.Count(out, "this file has its own image") != 1 || !strings.Contains(out, warning) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err := runImport(t, root, more, ImportOptions{}); err != nil || strings.Contains(out, warning) {
		t.Errorf("again: %v\n%s", err, out)
	}
}

func TestImportWithoutLayersOfTheBase(t *testing.T) {
	root := testhost.Node(t)
	full, onTop, moved := importBundles(t)
	layer := onTop.Manifest.Base.Layers[0]

	_, _, err := runImport(t, root, onTop, ImportOptions{})
	wantFault(t, "without the base", err, fault.Preflight, "image "+newApp, layer, onTop.File.Path()+" import --base FILE", full.ID())
	_, _, err = runImport(t, root, onTop, ImportOptions{Base: moved})
	wantFault(t, "with another base", err, fault.Usage, moved.File.Path(), moved.ID(), full.ID())
	_, _, err = runImport(t, root, full, ImportOptions{Base: full})
	wantFault(t, "a base for a bundle without", err, fault.Usage, "--base")
	if ledger := testhost.Open(t, root).Records().ImageNames(); len(ledger) > 0 {
		t.Errorf("refused imports changed %v", ledger)
	}

	out, imported, err := runImport(t, root, moved, ImportOptions{Base: full})
	if err != nil || !slices.Equal(imported, []string{other}) {
		t.Fatalf("imported %q, %v", imported, err)
	}
	for _, want := range []string{"1 layer from " + full.File.Path(), "1 image imported.", "warning: this node has Kubernetes v1.36.2, and this file was built for v1.37.1"} {
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

func TestPruneAndUnpin(t *testing.T) {
	root := testhost.Node(t)
	full, onTop, moved := importBundles(t)
	for _, b := range []*payload.Bundle{full, onTop, moved} {
		o := ImportOptions{}
		if b == moved {
			o.Base = full
		}
		if _, _, err := runImport(t, root, b, o); err != nil {
			t.Fatal(err)
		}
	}
	names := func() int { return len(testhost.Open(t, root).Records().ImageNames()) }
	if names() != 9 { // three of each image
		t.Errorf("the ledger has %d names", names())
	}

	withImages(t, root, onTop, []*payload.Bundle{full}, func(n *NodeImages) {
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

	withImages(t, root, onTop, []*payload.Bundle{full}, func(n *NodeImages) {
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
		wantUnserved(t, n, oldApp, other)
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
	// The other image still has the layer of the pruned image.
	if out, imported, err := runImport(t, root, onTop, ImportOptions{}); err != nil || len(imported) > 0 {
		t.Errorf("imported %q, %v\n%s", imported, err, out)
	}
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
		if got, err := node.RuntimeSocket(h); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// TestImportOfADamagedBase: a flipped byte in the base is found before anything changes.
func TestImportOfADamagedBase(t *testing.T) {
	root := testhost.Node(t)
	full, onTop, _ := importBundles(t)
	path := full.File.Path()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[full.File.PayloadOffset()+full.File.PayloadSize()/2] ^= 1 // in the lower layer
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, data, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(damaged)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	base, err := payload.OpenBundle(f)
	if err != nil {
		t.Fatal(err)
	}
	base.CheckFile(t.Context())
	defer base.Close()
	_, _, err = runImport(t, root, onTop, ImportOptions{Base: base})
	wantFault(t, "a damaged base", err, fault.Bundle, damaged)
	if ledger := testhost.Open(t, root).Records().ImageNames(); len(ledger) > 0 {
		t.Errorf("the import changed %v", ledger)
	}

	// Each piece is compared again when it is read.
	unchecked, err := payload.OpenBundle(f)
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
func forged(t *testing.T, b *payload.Bundle, content map[string][]byte) *payload.Bundle {
	t.Helper()
	data, err := os.ReadFile(b.File.Path())
	if err != nil {
		t.Fatal(err)
	}
	trailer, _, err := head.ReadAt(bytes.NewReader(data), int64(len(data)), b.File.Path())
	if err != nil {
		t.Fatal(err)
	}
	var images bytes.Buffer
	z, err := zstd.NewWriter(&images)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, e := range b.Manifest.Entries {
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
	stored := slices.Concat(data[begin:begin+int(trailer.HeadSize)], images.Bytes())
	var digester head.Digester
	if _, err := digester.Write(stored); err != nil {
		t.Fatal(err)
	}
	digests, sum := digester.Encode()
	trailer.PayloadSize, trailer.DigestsSHA256 = uint64(len(stored)), sum
	path := filepath.Join(t.TempDir(), "forged")
	all := slices.Concat(data[:begin-head.HeaderSize], head.Header{FileSize: trailer.FileSize()}.Encode(), stored, digests, trailer.Encode())
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
	forged, err := payload.OpenBundle(f)
	if err != nil {
		t.Fatal(err)
	}
	return forged
}

// TestImportOfAForgedBase: a file with the manifest of the base and another layer is a valid file,
// but the layer is not the image's layer.
func TestImportOfAForgedBase(t *testing.T) {
	root := testhost.Node(t)
	content := make([]byte, 5<<20) // too large for the importer's memory, so it is unpacked while it is read
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	lower := testbundle.Layer(t, "lower", string(content))
	content[len(content)/2] ^= 1
	changed := testbundle.Layer(t, "lower", string(content))

	f := testbundle.NewImages()
	f.Add(t, oldApp, oldApp, nil, lower)
	full := f.Write(t, "install")
	b := testbundle.NewImages(bundle.OnlyImages)
	b.Manifest.Base = &bundle.Base{ManifestSHA256: full.ID()}
	b.Add(t, newApp, newApp, full, lower, testbundle.Layer(t, "upper", "upper"))
	more := b.Write(t, "more")

	f.Content[bundle.BlobName("sha256:"+testbundle.Sum(lower))] = changed
	base := forged(t, full, f.Content)
	if base.ID() != full.ID() {
		t.Fatal("the forged file has another manifest")
	}
	_, _, err := runImport(t, root, more, ImportOptions{Base: base})
	wantFault(t, "a forged base", err, fault.Bundle, base.File.Path(), "sha256:"+testbundle.Sum(lower), "content has digest sha256:"+testbundle.Sum(changed))
	withImages(t, root, more, nil, func(n *NodeImages) {
		if list, err := n.List(t.Context()); err != nil || len(list) > 0 {
			t.Errorf("after the error: %q, %v", namesOf(list), err)
		}
	})
	if _, imported, err := runImport(t, root, more, ImportOptions{Base: full}); err != nil || !slices.Equal(imported, []string{newApp}) {
		t.Errorf("with the true base: imported %q, %v", imported, err)
	}
}
