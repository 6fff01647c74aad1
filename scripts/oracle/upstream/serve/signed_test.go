package serve

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/builder/fetch"
	pulls "airlift/builder/registry"
	"airlift/builder/upstreamsig"
	"airlift/scripts/fixtures/fakesigstore"
	"airlift/scripts/oracle/upstream/image"
)

// A build finds the signatures through the redirects of the sites, and they are valid.
func TestSigned(t *testing.T) {
	cache := t.TempDir()
	blob := func(h v1.Hash) string { return filepath.Join(cache, "blobs", h.Hex) }
	files, err := Files(fillCache(t, cache), release)
	if err != nil {
		t.Fatal(err)
	}
	pause := randomImage(t, blob, "pause", "3.9")
	keys := fakesigstore.New(t)
	content, err := Content{Manifests: map[string][]image.Manifest{"registry.k8s.io": pause}, Files: files, Blob: blob}.Signed(keys, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server, err := Start("127.0.0.1:0", content, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, s := range server.servers {
			s.Close()
		}
	}()
	client, images := clients(t, server, keys)
	v, err := upstreamsig.NewVerifier(keys.TrustedRoot())
	if err != nil {
		t.Fatal(err)
	}

	const url = "https://dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet"
	text := func(url string) []byte {
		t.Helper()
		s, _, err := client.Text(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		return []byte(s)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(text(url)))
	d, err := upstreamsig.ParseFiles(text(url+".sig"), text(url+".cert"), sum)
	if err != nil {
		t.Fatal(err)
	}
	query, err := d.Query()
	if err != nil {
		t.Fatal(err)
	}
	answer, _, err := client.Ask(t.Context(), fetch.Question{URL: upstreamsig.LogURL, JSON: query})
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.WithLog(answer)
	if err != nil {
		t.Fatal(err)
	}
	who, _ := upstreamsig.OfFile(url)
	if _, err := v.Any(list, "sha256:"+sum, who); err != nil {
		t.Error(err)
	}

	digest := pause[0].Digest.String()
	signatures, err := images.Signatures(t.Context(), "registry.k8s.io/pause:3.9", digest, upstreamsig.BundleType)
	if err != nil || len(signatures) != 1 {
		t.Fatalf("%d signatures, %v", len(signatures), err)
	}
	m, _, err := upstreamsig.ParseAnnotated(signatures[0].Document, signatures[0].Annotations)
	if err != nil {
		t.Fatal(err)
	}
	who, _ = upstreamsig.OfImage("registry.k8s.io/pause:3.9")
	if _, err := v.Any([]upstreamsig.Material{*m}, digest, who); err != nil {
		t.Error(err)
	}
}

// clients send requests to the sites and to the transparency log.
func clients(t *testing.T, server *Server, keys *fakesigstore.Sigstore) (*fetch.Client, *pulls.Client) {
	t.Helper()
	flags := []string{keys.Mirror()}
	for _, m := range server.Mirrors {
		flags = append(flags, m.Host+"="+m.URL)
	}
	var list []fetch.Mirror
	for _, flag := range flags {
		m, err := fetch.ParseMirror(flag)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	mirrors, err := fetch.NewMirrors(http.DefaultTransport, list)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := fetch.OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client := fetch.New(cache, mirrors)
	return client, pulls.New(client, mirrors, "amd64")
}
