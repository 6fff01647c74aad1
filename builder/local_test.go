package builder_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"airlift/builder"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// localSources writes an image layout with an index, and an archive with two images.
func localSources(t *testing.T) (dir string, index v1.ImageIndex) {
	t.Helper()
	dir = t.TempDir()
	index = empty.Index
	for arch, img := range indexOf(t, "amd64") {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	p, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err == nil {
		err = p.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "v1"}))
	}
	if err != nil {
		t.Fatal(err)
	}
	tags := map[name.Tag]v1.Image{}
	for _, s := range []string{"registry.example/a:1", "registry.example/b:1"} {
		tag, err := name.NewTag(s)
		if err != nil {
			t.Fatal(err)
		}
		tags[tag] = fakesites.Image(t, "amd64", s)
	}
	if err := tarball.MultiWriteToFile(filepath.Join(dir, "two.tar"), tags); err != nil {
		t.Fatal(err)
	}
	return dir, index
}

func TestLocalImages(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	u.Push("docker.io/team/app:latest", fakesites.Image(t, "amd64", "app"))
	dir, index := localSources(t)
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, u)
	o.Images = []string{"docker-archive:" + dir + "/two.tar", "docker://team/app", "oci:" + dir + "/layout:v1=registry.k8s.io/pause:3.9",
		"oci:" + dir + "/layout:v1=registry.example/layout:1"}
	o.Pins = []builder.Pin{{Name: "registry.example/layout:1", SHA256: digest.Hex}}
	r := run(t, o)
	var got []string
	for _, i := range r.Manifest.Images {
		if i.Name == "pause" && i.Target.Digest != digest.String() {
			t.Errorf("pause is not from the layout: %s", i.Target.Digest)
		}
		got = append(got, i.Reference)
	}
	slices.Sort(got[len(got)-4:])
	if want := []string{"docker.io/team/app:latest", "registry.example/a:1", "registry.example/b:1", "registry.example/layout:1"}; !slices.Equal(got[len(got)-4:], want) {
		t.Errorf("images = %v", got)
	}
	for _, q := range u.Requests() {
		if strings.Contains(q, "/pause/") {
			t.Errorf("pause was requested: %s", q)
		}
	}
	text, err := os.ReadFile(r.Provenance)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), dir) {
		t.Error("the provenance has the path of a local source")
	}
	var p builder.Provenance
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	for _, i := range p.Images {
		want, by := "docker-archive", "local"
		switch i.Reference {
		case "registry.example/layout:1":
			want, by = "oci", "--checksum"
		case "registry.k8s.io/pause:3.9":
			want = "oci"
		case "registry.example/a:1", "registry.example/b:1":
		default:
			continue
		}
		if i.FetchedFrom != want || i.VouchedBy != by || i.Source != nil {
			t.Errorf("%+v", i)
		}
	}
	// The bundle depends on the contents only: the same again, without the network and the
	// cache of the images.
	sum := r.SHA256
	if err := os.Rename(filepath.Join(dir, "two.tar"), filepath.Join(dir, "moved.tar")); err != nil {
		t.Fatal(err)
	}
	o.Images[0] = "docker-archive:" + dir + "/moved.tar"
	if again := run(t, o); again.SHA256 != sum {
		t.Error("another path gives another bundle")
	}
}

func TestLocalImagesThatDoNotFit(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	dir, _ := localSources(t)
	two, oci := "docker-archive:"+dir+"/two.tar", "oci:"+dir+"/layout:v1"
	for name, c := range map[string]struct {
		images []string
		pin    string
		want   string
		code   fault.Code
	}{
		"no file":         {images: []string{"oci-archive:" + dir + "/none.tar"}, want: "no such file", code: fault.Usage},
		"the same twice":  {images: []string{two, oci + "=registry.example/a:1"}, want: "registry.example/a:1 is also in another --image", code: fault.Usage},
		"also a registry": {images: []string{"registry.example/a:1", two}, want: "is also in another --image", code: fault.Usage},
		"another digest":  {images: []string{two}, pin: "registry.example/a:1", want: "but --checksum requires sha256:00", code: fault.Failure},
		"no name":         {images: []string{oci}, want: "has no name that pods can use", code: fault.Usage},
	} {
		o := options(t, u)
		o.Images = c.images
		if c.pin != "" {
			o.Pins = []builder.Pin{{Name: c.pin, SHA256: strings.Repeat("0", 64)}}
		}
		_, err := runOne(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.ExitCode(err) != c.code {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}
