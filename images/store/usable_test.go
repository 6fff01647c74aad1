package store_test

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/images/store"
)

// An image is usable however it came, and only if a container could start from it.
func TestStateOf(t *testing.T) {
	site := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer site.Close()
	host := must(url.Parse(site.URL)).Host

	for way, bring := range map[string]func(d *daemon, s *store.Store, ref string, p *imageSet){
		"imported by Airlift": func(_ *daemon, s *store.Store, _ string, p *imageSet) { importAll(t, s, p) },
		"pulled by the CRI": func(d *daemon, _ *store.Store, ref string, _ *imageSet) {
			images, _ := d.cri()
			if _, err := images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}}); err != nil {
				t.Fatal(err)
			}
		},
		"imported by ctr": nil, "imported by ctr, not unpacked": nil,
	} {
		t.Run(way, func(t *testing.T) {
			d := startDaemon(t, ours(t), "overlayfs")
			s := d.connect()
			img := image(t, "/"+way, layer(t, text("lower", way)), layer(t, text("upper", way+"!")))
			ref := host + "/" + fmt.Sprint("app", len(way)) + ":1"
			var p imageSet
			b := p.add(t, ref, img, index(t, img))
			if err := remote.WriteIndex(must(name.ParseReference(ref)), index(t, img)); err != nil {
				t.Fatal(err)
			}
			expect := func(when string, want store.ImageState) {
				t.Helper()
				if got, err := s.StateOf(t.Context(), b); err != nil || got != want {
					t.Errorf("%s: %d, %v; want %d", when, got, err, want)
				}
			}
			expect("before", store.Absent)
			switch way {
			case "imported by ctr":
				d.importTar("k8s.io", archive(t, d, ref, img))
			case "imported by ctr, not unpacked":
				d.ctr("k8s.io", "images", "import", "--local", "--no-unpack", archive(t, d, ref, img))
			default:
				bring(d, s, ref, &p)
			}
			expect("after", store.Usable)
			if missing, err := s.Missing(t.Context(), p.images); err != nil || (len(missing) > 0) != (way != "imported by Airlift") {
				t.Errorf("an import would not complete what came otherwise: %v, %v", missing, err)
			}

			// Without the layers, and then without the snapshots.
			for _, l := range must(img.Layers()) {
				if digest := must(l.Digest()).String(); way != "imported by Airlift" {
					d.ctr("k8s.io", "content", "rm", digest)
				}
			}
			if way == "imported by ctr, not unpacked" {
				expect("without layers", store.Incomplete)
				return
			}
			expect("unpacked, without layers", store.Usable)
			d.ctr("k8s.io", "content", "rm", must(img.ConfigName()).String())
			expect("without its config", store.Incomplete)
		})
	}
}
