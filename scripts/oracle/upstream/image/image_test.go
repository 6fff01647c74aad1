package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle/upstream/components"
)

// The images of every release have names, own layers and a list of platforms; the control plane
// images share their base.
func TestSpecs(t *testing.T) {
	b := &Builder{Cache: t.TempDir()}
	for _, version := range []string{"v1.29", "v1.30", "v1.31", "v1.32", "v1.33", "v1.34", "v1.35", "v1.36", "v1.37"} {
		release, err := components.Find(version)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]bool)
		for _, s := range append(b.specs(release), b.addOns(release)...) {
			ref := s.host + "/" + s.repository + ":" + s.tag
			if seen[ref] || s.tag == "" || len(s.layers) == 0 || len(s.others) == 0 {
				t.Errorf("%s: %s is listed twice or lacks something", version, ref)
			}
			seen[ref] = true
			if s.host == "registry.k8s.io" && s.repository != "pause" && s.layers[0].key != static()[0].key {
				t.Errorf("%s does not share the base", ref)
			}
			for _, p := range s.others {
				if absent(s, p).String() == "" {
					t.Errorf("%s: no digest for %s", ref, p)
				}
			}
		}
		if !seen["registry.k8s.io/kube-apiserver:"+release.Kubernetes] {
			t.Errorf("%s has no API server", version)
		}
	}
}

func sample(_ context.Context, t *tree) error {
	t.file("usr/local/bin/server", 0o755, []byte("program"))
	t.allowLowPorts("usr/local/bin/server")
	t.link("bin", "usr/bin")
	t.dir("home/nonroot", 0o700, 65532)
	return nil
}

// The same tree gives the same bytes, and a second request for a key does not fill the
// layer again.
func TestLayerIsMadeOnce(t *testing.T) {
	one, two := &Store{t.TempDir()}, &Store{t.TempDir()}
	first, err := one.layer(t.Context(), "amd64", "key", sample)
	if err != nil {
		t.Fatal(err)
	}
	second, err := two.layer(t.Context(), "amd64", "key", sample)
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("two stores made %v and %v of the same tree", first, second)
	}
	again, err := one.layer(t.Context(), "amd64", "key", func(context.Context, *tree) error { return errors.New("filled again") })
	if err != nil || again != first {
		t.Errorf("asked again: %v, %v", again, err)
	}
	// A record whose blob was deleted is ignored.
	if err := os.Remove(one.Blob(first.Digest)); err != nil {
		t.Fatal(err)
	}
	if again, err = one.layer(t.Context(), "amd64", "key", sample); err != nil || again != first {
		t.Errorf("after losing the blob: %v, %v", again, err)
	}
}

func TestLayerContents(t *testing.T) {
	store := &Store{t.TempDir()}
	l, err := store.layer(t.Context(), "amd64", "key", sample)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(store.Blob(l.Digest))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	tr := tar.NewReader(zip)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Name == "usr/local/bin/server" && h.PAXRecords["SCHILY.xattr.security.capability"] != capNetBindService {
			t.Errorf("the program lost its capability: %q", h.PAXRecords)
		}
		if h.ModTime.Unix() != 0 {
			t.Errorf("%s is dated %s", h.Name, h.ModTime)
		}
	}
	want := []string{"bin", "home/", "home/nonroot/", "usr/", "usr/local/", "usr/local/bin/", "usr/local/bin/server"}
	if !slices.Equal(names, want) {
		t.Errorf("layer has %q, want %q", names, want)
	}
}

// The capability has the bytes that setcap writes.
func TestCapabilityMatchesSetcap(t *testing.T) {
	rig.Root(t)
	setcap := rig.Tool(t, "setcap")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), setcap, "cap_net_bind_service=+ep", file).CombinedOutput(); err != nil {
		t.Fatalf("setcap: %v: %s", err, out)
	}
	got := getxattr(t, file, "security.capability")
	if got != capNetBindService {
		t.Errorf("setcap writes %q, this package %q", got, capNetBindService)
	}
}

func nothing(string) bool { return false }

// ldd is the reference for the libraries of a binary.
func TestLibrariesAreThoseLddNames(t *testing.T) {
	program, err := filepath.EvalSymlinks("/bin/tar")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "ldd", program).Output()
	if err != nil {
		t.Fatalf("running ldd %s: %v", program, err)
	}
	from := newTree("amd64")
	var want []string
	for field := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(field, "/") {
			continue
		}
		real, err := filepath.EvalSymlinks(field)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(real)
		if err != nil {
			t.Fatal(err)
		}
		from.file(merged(real), 0o755, data)
		if merged(field) != merged(real) { // libx.so.1 -> libx.so.1.2.3, and the loader in lib64
			from.link(merged(field), real)
		}
		want = append(want, merged(real))
	}
	if len(want) < 2 {
		t.Fatalf("ldd names too little for a test: %s", out)
	}
	from.file("usr/lib/x86_64-linux-gnu/libunrelated.so.1", 0o644, nil)

	layer := newTree("amd64")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	layer.file("usr/bin/tar", 0o755, data)
	if err := layer.addLibraries(from, nothing); err != nil {
		t.Fatal(err)
	}
	var got []string
	for name, e := range layer.entries {
		if e.header.Typeflag == tar.TypeReg && name != "usr/bin/tar" {
			got = append(got, name)
		}
	}
	sort.Strings(got)
	sort.Strings(want)
	if !slices.Equal(got, want) {
		t.Errorf("took %q, ldd says %q", got, want)
	}

	layer = newTree("amd64")
	layer.file("usr/bin/tar", 0o755, data)
	if err := layer.addLibraries(newTree("amd64"), func(name string) bool { return strings.HasPrefix(name, "usr/lib") }); err != nil {
		t.Errorf("with all libraries below: %v", err)
	}

	delete(from.entries, want[0])
	layer = newTree("amd64")
	layer.file("usr/bin/tar", 0o755, data)
	if err := layer.addLibraries(from, nothing); err == nil || !strings.Contains(err.Error(), want[0]) {
		t.Errorf("without %s: got error %v", want[0], err)
	}
}

// Packages have files in /bin and /lib; the layer must not, because it would replace the
// base's links by directories.
func TestPackagesAreMerged(t *testing.T) {
	var pkg bytes.Buffer
	tw := tar.NewWriter(&pkg)
	for _, name := range []string{"./lib/x86_64-linux-gnu/libc.so.6", "./sbin/tool", "./etc/conf"} {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.WriteHeader(&tar.Header{Name: "./sbin/same", Linkname: "./sbin/tool", Typeflag: tar.TypeLink}); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	tree := newTree("amd64")
	if err := tree.addTar(&pkg); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/lib/x86_64-linux-gnu/libc.so.6", "usr/sbin/tool", "etc/conf", "usr/sbin/same"} {
		if tree.entries[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if tree.entries["lib"] != nil || tree.entries["sbin"] != nil {
		t.Error("the layer has /lib or /sbin of its own")
	}
	if got := linkTarget("usr/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"); got != "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" {
		t.Errorf("the loader's link leads to %s", got)
	}
}

func getxattr(t *testing.T, file, name string) string {
	t.Helper()
	buf := make([]byte, 64)
	n, err := unix.Getxattr(file, name, buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// The index lists first the architectures that the rig has, and all others too. They share no layer.
func TestArchitectures(t *testing.T) {
	b := &Builder{Cache: t.TempDir(), Log: io.Discard}
	of := func(arch string) spec {
		return spec{
			host: "registry.example", repository: "server", tag: "v1", kind: oci, arch: arch, others: linux("arm64", "s390x"),
			layers: []layerSpec{{"server", func(_ context.Context, t *tree) error {
				t.file("arch", 0o644, []byte(t.arch))
				return nil
			}}},
		}
	}
	layers := make(map[string]string)
	for _, c := range []struct {
		image []spec
		want  []string
	}{
		{[]spec{of("amd64")}, []string{"amd64", "arm64", "s390x"}},
		{[]spec{of("arm64")}, []string{"arm64", "amd64", "s390x"}},
		{[]spec{of("amd64"), of("arm64")}, []string{"amd64", "arm64", "s390x"}},
	} {
		manifests, err := b.one(t.Context(), c.image)
		if err != nil {
			t.Fatal(err)
		}
		index, singles := manifests[0], manifests[1:]
		var platforms []string
		for _, child := range index.Children {
			platforms = append(platforms, child.Platform.Architecture)
		}
		if !slices.Equal(platforms, c.want) || len(singles) != len(c.image) {
			t.Errorf("the index has %q and %d manifests, want %q and %d", platforms, len(singles), c.want, len(c.image))
		}
		for i, s := range c.image {
			if index.Children[i].Digest != singles[i].Digest {
				t.Errorf("%s: the index has the digest %s, the manifest %s", s.arch, index.Children[i].Digest, singles[i].Digest)
			}
			var manifest v1.Manifest
			if err := json.Unmarshal(singles[i].Data, &manifest); err != nil {
				t.Fatal(err)
			}
			digest := manifest.Layers[0].Digest.String()
			if before := layers[s.arch]; before != "" && before != digest {
				t.Errorf("%s: the layer is %s, and was %s", s.arch, digest, before)
			}
			layers[s.arch] = digest
		}
	}
	if layers["amd64"] == layers["arm64"] {
		t.Error("both architectures have the same layer")
	}
}
