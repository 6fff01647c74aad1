package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/flow/site"
	"airlift/installer/host"
	"airlift/installer/payload"
	"airlift/installer/registry"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testbundle"
)

// Commands with a file of the site's own images and manifests.
const (
	siteImport    = "import"
	siteImportAll = "import --all-nodes"
	siteApply     = "apply"
)

// siteImage and siteObject are what that file has.
const siteImage, siteObject = "site.example/app:1", "configmaps/default/site"

// newSiteBundle writes the file of the site for a version.
func newSiteBundle(t *testing.T, version string) *payload.Bundle {
	t.Helper()
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: site}\ndata: {of: the site}\n"
	b := testbundle.NewImages(bundle.OnlyImages, bundle.OnlyManifests)
	b.Manifest.KubernetesVersion = version
	m := bundle.SiteManifest{Name: "site"}
	b.Manifest.Manifests = []bundle.SiteManifest{m}
	b.Manifest.Entries = []bundle.Entry{{Name: m.Entry(), Size: int64(len(text)), SHA256: testbundle.Sum([]byte(text))}}
	b.Content[m.Entry()] = []byte(text)
	b.Add(t, siteImage, siteImage, nil)
	return openBundle(t, "more-"+version, version, b)
}

// openBundle writes a bundle and opens it.
func openBundle(t *testing.T, name, version string, b *testbundle.Images) *payload.Bundle {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: []byte("launcher"), Installer: []byte(installerText(version))}, &b.Manifest, bundle.Fastest, b.Content)
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	opened, err := payload.OpenBundle(f)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// importSite imports the images of the site.
func (r *run) importSite(b *payload.Bundle, allNodes bool) (string, error) {
	r.imports = true
	return r.changing(siteImport, b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		run := site.NewImport(b, site.ImportOptions{AllNodes: allNodes}, h, c)
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// applySite applies the manifests of the site.
func (r *run) applySite(b *payload.Bundle) (string, error) {
	return r.changing(siteApply, b.Manifest.KubernetesVersion, func(h *host.Host, c *workflow.Console) error {
		c.Results = io.Discard
		o := site.ApplyOptions{}
		o.Kubeconfig = h.Path(config.KubernetesDir + "/admin.conf")
		run := site.NewApply(b, o, h, c)
		defer run.Close()
		return run.Run(r.ctx)
	})
}

// hasSite fails if a host does not have the images of the site after an import, or the cluster not its objects after apply.
func (s *Site) hasSite(h *Host, command string) error {
	if !h.store.has(siteImage) {
		return fmt.Errorf("%s has no image %s", h.Name, siteImage)
	}
	if digest := h.store.images[siteImage].Target.Digest; h.store.content[digest] == nil {
		return fmt.Errorf("%s has no content of the image %s", h.Name, siteImage)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.api(); command == siteApply && c != nil && c.data[siteObject] == "" {
		return errors.New("the objects of the site are not in the cluster")
	}
	return nil
}

// PullImage pulls an image from a control plane that serves it.
func (i criImages) PullImage(_ context.Context, r *criapi.PullImageRequest) (*criapi.PullImageResponse, error) {
	name := r.GetImage().GetImage()
	w := i.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		if !h.unit(registry.Unit).active || h.store == i.store || !h.store.has(name) {
			continue
		}
		h.store.mu.Lock()
		image, content := h.store.images[name], maps.Clone(h.store.content)
		h.store.mu.Unlock()
		i.store.mu.Lock()
		defer i.store.mu.Unlock()
		for digest, b := range content {
			if i.store.content[digest] == nil {
				i.store.content[digest] = b
			}
		}
		i.store.images[name] = image
		return &criapi.PullImageResponse{ImageRef: image.Target.Digest}, nil
	}
	return nil, status.Error(codes.NotFound, "no control plane serves "+name)
}
