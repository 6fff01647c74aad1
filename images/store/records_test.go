package store_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/bundle"
	"airlift/images/store"
)

// cri connects to the daemon's CRI without package store.
func (d *daemon) cri() (cri.ImageServiceClient, cri.RuntimeServiceClient) {
	d.t.Helper()
	conn, err := grpc.NewClient("unix://"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	return cri.NewImageServiceClient(conn), cri.NewRuntimeServiceClient(conn)
}

// status is the CRI's status of an image, or nil.
func (d *daemon) status(name string) *cri.Image {
	d.t.Helper()
	images, _ := d.cri()
	st, err := images.ImageStatus(d.t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil {
		d.t.Fatal(err)
	}
	return st.Image
}

// records returns the target of each image record, with the CRI's label.
func (d *daemon) records() map[string]string {
	d.t.Helper()
	c := d.client("k8s.io")
	defer c.Close()
	list, err := c.ImageService().List(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	records := map[string]string{}
	for _, img := range list {
		records[img.Name] = img.Target.MediaType + " " + img.Target.Digest.String() + " " + img.Labels["io.cri-containerd.image"]
	}
	return records
}

// blobs lists the digests in the content store.
func (d *daemon) blobs() []string {
	d.t.Helper()
	return fields(d.ctr("k8s.io", "content", "ls", "--quiet"))
}

// snapshots lists the keys of the snapshots, committed or not.
func (d *daemon) snapshots() []string {
	d.t.Helper()
	c := d.client("k8s.io")
	defer c.Close()
	var keys []string
	err := c.SnapshotService(d.snapshotter).Walk(d.t.Context(), func(_ context.Context, info snapshots.Info) error {
		keys = append(keys, info.Name)
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return keys
}

// topSnapshot is the committed snapshot that is not a parent.
func (d *daemon) topSnapshot() string {
	d.t.Helper()
	c := d.client("k8s.io")
	defer c.Close()
	sn := c.SnapshotService(d.snapshotter)
	keys := d.snapshots()
	parents := map[string]bool{}
	for _, key := range keys {
		info, err := sn.Stat(d.t.Context(), key)
		if err != nil {
			d.t.Fatal(err)
		}
		parents[info.Parent] = true
	}
	for _, key := range keys {
		if !parents[key] {
			return key
		}
	}
	d.t.Fatalf("no top among %q", keys)
	return ""
}

// gcLabels lists the labels of all blobs that affect garbage collection.
func (d *daemon) gcLabels() []string {
	d.t.Helper()
	c := d.client("k8s.io")
	defer c.Close()
	var labels []string
	err := c.ContentStore().Walk(d.t.Context(), func(info content.Info) error {
		for k, v := range info.Labels {
			if strings.HasPrefix(k, "containerd.io/gc.") {
				labels = append(labels, info.Digest.String()+" "+k+"="+v)
			}
		}
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	slices.Sort(labels)
	return labels
}

func (d *daemon) leases() []string {
	d.t.Helper()
	return fields(d.ctr("k8s.io", "leases", "ls", "--quiet"))
}

func fields(text string) []string {
	var all []string
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		all = append(all, s.Text())
	}
	return all
}

// The reference is a pull by the CRI: the same records with the same targets, and the same
// status for the kubelet.
func TestRecordsEqualPull(t *testing.T) {
	onEach(t, func(t *testing.T, rel release) {
		site := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		defer site.Close()
		host := must(url.Parse(site.URL)).Host

		img := richImage(t, "/rich")
		idx := index(t, img)
		variants := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image(t, "/v3"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64", Variant: "v3"}}},
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
		nested := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: idx})})
		bare := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img})
		for _, test := range []struct {
			name string
			ref  string
			idx  v1.ImageIndex
		}{
			{"index by tag", host + "/k8s/rich:v1", idx},
			{"manifest by tag", host + "/k8s/plain:v1.2.3", nil},
			{"index by digest", host + "/k8s/rich@" + must(idx.Digest()).String(), idx},
			{"tag and digest", host + "/k8s/rich:v1@" + must(idx.Digest()).String(), idx},
			{"a variant first", host + "/k8s/variants:v1", variants},
			{"index in indexes", host + "/k8s/nested:v1", nested},
			{"without a platform", host + "/k8s/bare:v1", bare},
		} {
			t.Run(test.name, func(t *testing.T) {
				var p imageSet
				push := must(name.ParseReference(test.ref))
				if test.idx != nil {
					p.add(t, test.ref, img, test.idx)
					if err := remote.WriteIndex(push, test.idx); err != nil {
						t.Fatal(err)
					}
				} else {
					p.add(t, test.ref, img, nil)
					if err := remote.Write(push, img); err != nil {
						t.Fatal(err)
					}
				}

				pulled := startDaemon(t, rel, "overlayfs")
				pulled.connect()
				images, _ := pulled.cri()
				if _, err := images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: test.ref}}); err != nil {
					t.Fatal(err)
				}
				imported := startDaemon(t, rel, "overlayfs")
				importAll(t, imported.connect(), &p)
				assertMissing(t, imported.connect(), &p) // the end of an import collects garbage

				if diff := cmp.Diff(pulled.records(), imported.records()); diff != "" {
					t.Errorf("records (-pulled +imported):\n%s", diff)
				}
				for name := range pulled.records() {
					want, got := pulled.status(name), imported.status(name)
					if want == nil || got == nil {
						t.Errorf("status of %s: pulled %v, imported %v", name, want, got)
						continue
					}
					// Pods use both names, and the kubelet compares the IDs.
					if want.Id != got.Id || !slices.Equal(want.RepoTags, got.RepoTags) || !slices.Equal(want.RepoDigests, got.RepoDigests) || want.Size != got.Size {
						t.Errorf("status of %s:\npulled   %v\nimported %v", name, want, got)
					}
					// 1.6 has no such field.
					if !rel.old() && !got.Pinned {
						t.Errorf("%s is not pinned", name)
					}
				}

				// A pull after an import must find everything.
				images, _ = imported.cri()
				if _, err := images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: test.ref}}); err != nil {
					t.Errorf("pulling what was imported: %v", err)
				}
				compareTrees(t, imported.contents("k8s.io", img), pulled.contents("k8s.io", img))
				// An import after a pull only has to pin the image.
				s := pulled.connect()
				assertMissing(t, s, &p, test.ref)
				importAll(t, s, &p)
				assertMissing(t, s, &p)
			})
		}
	})
}

// A name of an image of Kubernetes, also one that it got later, is known before another image gets it.
func TestReplaced(t *testing.T) {
	s := startDaemon(t, ours(t), "overlayfs").connect()
	const proxy, alias, app = "registry.example.com/kube-proxy:v1", "registry.example.com/k8s/kube-proxy:v1", "registry.example.com/app:v1"
	var p, own imageSet
	p.add(t, proxy, image(t, "/proxy", layer(t, text("a", "a"))), nil)
	p.images[0].Name = "kube-proxy"
	p.add(t, app, image(t, "/app", layer(t, text("b", "b"))), nil)
	importAll(t, s, &p)
	if err := s.Tag(t.Context(), proxy, alias); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Replaced(t.Context(), p.images); err != nil || len(got) > 0 {
		t.Errorf("the same images: %q, %v", got, err)
	}
	for _, name := range []string{proxy, alias, app, "registry.example.com/new:v1"} {
		own.add(t, name, image(t, "/own", layer(t, text("c", "c"))), nil)
	}
	if got, err := s.Replaced(t.Context(), own.images); err != nil || !slices.Equal(got, []string{proxy, alias}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTagAndRemove(t *testing.T) {
	onEach(t, func(t *testing.T, rel release) {
		d := startDaemon(t, rel, "overlayfs")
		s := d.connect()
		const ref = "registry.example.com/pause:3.9"
		var p imageSet
		img := image(t, "/pause", layer(t, text("pause", "binary")))
		p.add(t, ref, img, index(t, img))
		importAll(t, s, &p)
		ctx := t.Context()

		if err := s.Tag(ctx, ref, pauseInConfig); err != nil {
			t.Fatal(err)
		}
		if err := s.Tag(ctx, ref, pauseInConfig); err != nil {
			t.Errorf("tagging twice: %v", err)
		}
		if st := d.status(pauseInConfig); st == nil || !slices.Contains(st.RepoTags, pauseInConfig) || !slices.Contains(st.RepoTags, ref) {
			t.Errorf("status of the new name = %v", st)
		}
		if err := s.Tag(ctx, "registry.example.com/none:1", pauseInConfig); err == nil || !strings.Contains(err.Error(), "registry.example.com/none:1") {
			t.Errorf("tagging what is not there: %v", err)
		}
		assertMissing(t, s, &p)

		if err := s.RemoveImages(ctx, []string{pauseInConfig, "registry.example.com/none:1"}); err != nil {
			t.Fatal(err)
		}
		if _, still := d.records()[pauseInConfig]; still || len(d.records()) != 3 {
			t.Errorf("records after removing the new name: %v", d.records())
		}
		assertMissing(t, s, &p)

		if err := s.Tag(ctx, ref, pauseInConfig); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveImages(ctx, []string{ref, pauseInConfig}); err != nil {
			t.Fatal(err)
		}
		if r, b, sn := d.records(), d.blobs(), d.snapshots(); len(r)+len(b)+len(sn) > 0 {
			t.Errorf("left after removing all: records %v, blobs %v, snapshots %v", r, b, sn)
		}
		assertMissing(t, s, &p, ref)

		// As the kubelet removes images.
		importAll(t, s, &p)
		images, _ := d.cri()
		if _, err := images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: must(img.ConfigName()).String()}}); err != nil {
			t.Fatal(err)
		}
		if r, b, sn := d.records(), d.blobs(), d.snapshots(); len(r)+len(b)+len(sn) > 0 {
			t.Errorf("left after the CRI removed it: records %v, blobs %v, snapshots %v", r, b, sn)
		}
		importAll(t, s, &p)
		assertMissing(t, s, &p)
	})
}

func TestInfo(t *testing.T) {
	onEachSnapshotter(t, func(t *testing.T, d *daemon) {
		info, err := d.connect().Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		network := info.Network.Message
		info.Network.Message = ""
		want := store.Info{
			Version: d.release.name, CRI: true, Snapshotter: d.snapshotter, DefaultRuntime: "runc",
			SystemdCgroup: true, RestrictOOMScoreAdj: true, Runtime: store.Condition{Ready: true},
			SandboxImage: pauseInConfig,
			ImageDir:     d.path("root/io.containerd.snapshotter.v1." + d.snapshotter),
			CNIBinDirs:   []string{d.path("cni")}, CNIConfDir: d.path("net.d"),
		}
		if diff := cmp.Diff(want, info); diff != "" {
			t.Errorf("info (-want +got):\n%s", diff)
		}
		if !strings.Contains(network, "cni plugin not initialized") {
			t.Errorf("network condition says %q", network)
		}
	})
}

// containerd 2 does not report its sandbox image; its configuration files do, in every form
// that it supports.
func TestSandboxImageFromFiles(t *testing.T) {
	const main, other = "example.com/main:1", "example.com/imported:1"
	for name, files := range map[string]struct{ config, imported, want string }{
		"new":       {config: "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'example.com/main:1'\n", want: main},
		"old":       {config: "[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'example.com/main:1'\n", want: main},
		"none":      {want: ""},
		"imported":  {config: "imports = ['more/*.toml']\n", imported: "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'example.com/imported:1'\n", want: other},
		"overruled": {config: "imports = ['more/*.toml']\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'example.com/main:1'\n", imported: "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = 'example.com/imported:1'\n", want: other},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, ours(t), "overlayfs")
			base, _, _ := strings.Cut(d.config(), `[plugins."io.containerd.cri`)
			if name == "old" {
				base = strings.Replace(base, "version = 3", "version = 2", 1)
			}
			// The keys of a file precede its tables.
			version, tables, _ := strings.Cut(base, "\n")
			imports, config, _ := strings.Cut(files.config, "\n")
			if !strings.HasPrefix(imports, "imports") {
				imports, config = "", files.config
			}
			d.write("config.toml", version+"\n"+imports+"\n"+tables+config)
			if err := os.Mkdir(d.path("more"), 0o755); err != nil {
				t.Fatal(err)
			}
			if files.imported != "" {
				d.write("more/pause.toml", "version = 3\n"+files.imported)
			}
			d.start()
			info, err := d.connect().Info(t.Context())
			if err != nil || info.SandboxImage != files.want {
				t.Errorf("sandbox image = %q, %v; want %q", info.SandboxImage, err, files.want)
			}
			// containerd's own output for the same files.
			dump := run(t, d.dir, d.release.program(t, "containerd"), "--config", d.path("config.toml"), "config", "dump")
			if files.want != "" && !strings.Contains(dump, "sandbox = '"+files.want+"'") {
				t.Errorf("containerd itself reads:\n%s", dump)
			}
		})
	}
}

func TestNoCRI(t *testing.T) {
	onEach(t, func(t *testing.T, rel release) {
		d := newDaemon(t, rel, "overlayfs")
		disabled := `disabled_plugins = ["io.containerd.grpc.v1.cri"]` + "\n"
		d.write("config.toml", strings.Replace(d.config(), "\n", "\n"+disabled, 1))
		d.start()
		s := d.connect()
		info, err := s.Info(t.Context())
		if err != nil || !reflect.DeepEqual(info, store.Info{Version: d.release.name, Snapshotter: "overlayfs"}) {
			t.Errorf("info = %+v, %v", info, err)
		}
		var p imageSet
		p.add(t, "registry.example.com/a:1", image(t, "/a", layer(t, text("a", "a"))), nil)
		importAll(t, s, &p)
		assertMissing(t, s, &p)
		if err := s.RemovePods(t.Context()); err != nil {
			t.Errorf("removing pods where there can be none: %v", err)
		}
	})
}

func TestBadReference(t *testing.T) {
	d := startDaemon(t, ours(t), "overlayfs")
	s := d.connect()
	_, err := s.Missing(t.Context(), []bundle.Image{{Reference: "Not A Reference"}})
	if err == nil || !strings.Contains(err.Error(), `"Not A Reference"`) {
		t.Errorf("err = %v", err)
	}
}

// Images with the same config and different manifests have the same ID: an image, and its copy
// in another registry, whose layers were compressed again.
func TestImagesWithTheSameID(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, ours(t), "overlayfs")
	img := mutate.MediaType(must(mutate.AppendLayers(empty.Image, layer(t, text("hello", "hello")))), types.OCIManifestSchema1)
	copied := mutate.Annotations(img, map[string]string{"copied": "yes"}).(v1.Image)
	var p imageSet
	p.add(t, "registry.example/app:1", img, nil)
	p.add(t, "mirror.example/app:1", copied, nil)
	if p.images[0].Config != p.images[1].Config || p.images[0].Target == p.images[1].Target {
		t.Fatal("the images have other configs, or the same manifest")
	}
	s := d.connect()
	importAll(t, s, &p)
	assertMissing(t, s, &p)
	for _, i := range p.images {
		if d.status(i.Reference) == nil {
			t.Errorf("the CRI does not know %s", i.Reference)
		}
	}
}
