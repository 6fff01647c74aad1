package registry_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/builder/fetch"
	"airlift/builder/registry"
	"airlift/scripts/fixtures/fakesites"
)

// inFlight is more than the bytes that socket buffers hold.
const inFlight = 16 << 20

// endless answers until the client disconnects.
func endless(w http.ResponseWriter, sent *atomic.Int64) {
	chunk := bytes.Repeat([]byte(" "), 64<<10)
	for {
		n, err := w.Write(chunk)
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// A registry may send an endless answer to any request.
func TestEndlessAnswersEnd(t *testing.T) {
	good := fakesites.Image(t, "amd64", "x")
	m, err := good.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		target string
		status int
	}{
		"manifest": {"/manifests/v1", 200},
		"config":   {"/blobs/" + m.Config.Digest.String(), 200},
		"layer":    {"/blobs/" + m.Layers[1].Digest.String(), 200},
		"refusal":  {"/manifests/v1", 403},
		"ping":     {"/v2/", 200},
		"token":    {"/token", 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Push(ref, good)
			var sent atomic.Int64
			r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
				if name == "token" && strings.HasSuffix(target, "/v2/") {
					w.Header().Set("WWW-Authenticate", `Bearer realm="https://ghcr.io/token"`)
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
				if !strings.HasSuffix(target, c.target) {
					return false
				}
				w.WriteHeader(c.status)
				endless(w, &sent)
				return true
			}
			_, err := r.pull(r.client("amd64"), ref)
			// The body of a ping is not read.
			if err == nil && name != "ping" {
				t.Error("no error")
			}
			r.Close()
			if n := sent.Load(); n == 0 || n > 8<<20+inFlight {
				t.Errorf("%d bytes were taken, err = %v", n, err)
			}
		})
	}
}

// raw serves a manifest and blobs unchanged, even if they are wrong.
func (r *rig) raw(t *testing.T, m v1.Manifest, blobs map[string][]byte) {
	t.Helper()
	manifest, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
		if strings.HasSuffix(target, "/manifests/v1") {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			w.Write(manifest)
			return true
		}
		for digest, content := range blobs {
			if strings.HasSuffix(target, "/blobs/"+digest) {
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				w.Write(content)
				return true
			}
		}
		return false
	}
}

func hashOf(b []byte) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(b))}
}

// imageOf returns an image with one layer.
func imageOf(t *testing.T, layer []byte, diffID v1.Hash) (v1.Manifest, map[string][]byte) {
	t.Helper()
	config, err := json.Marshal(v1.ConfigFile{Architecture: "amd64", OS: "linux", RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{diffID}}})
	if err != nil {
		t.Fatal(err)
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Digest: hashOf(config), Size: int64(len(config))},
		Layers: []v1.Descriptor{{MediaType: types.OCILayer, Digest: hashOf(layer), Size: int64(len(layer))}}}
	return m, map[string][]byte{hashOf(config).String(): config, hashOf(layer).String(): layer}
}

func TestSizesOfDescriptorsHold(t *testing.T) {
	tar := fakesites.LayerTar(t, "x")
	for name, c := range map[string]struct {
		change func(*v1.Manifest)
		want   string
	}{
		"right":                         {func(*v1.Manifest) {}, ""},
		"config longer than announced":  {func(m *v1.Manifest) { m.Config.Size-- }, "config of"},
		"config shorter than announced": {func(m *v1.Manifest) { m.Config.Size++ }, "config of"},
		"config too large":              {func(m *v1.Manifest) { m.Config.Size = 4<<20 + 1 }, "not between 1 and 4194304"},
		"layer longer than announced":   {func(m *v1.Manifest) { m.Layers[0].Size-- }, "layer sha256:"},
		"layer shorter than announced":  {func(m *v1.Manifest) { m.Layers[0].Size++ }, "layer sha256:"},
		"layer without a size":          {func(m *v1.Manifest) { m.Layers[0].Size = 0 }, "not between 1"},
		"layer of negative size":        {func(m *v1.Manifest) { m.Layers[0].Size = -1 }, "not between 1"},
		"layer without end":             {func(m *v1.Manifest) { m.Layers[0].Size = 1<<40 + 1 }, "not between 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			m, blobs := imageOf(t, tar, hashOf(tar))
			c.change(&m)
			r.raw(t, m, blobs)
			_, err := r.pull(r.client("amd64"), ref)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// A layer of a hundred kilobytes that unpacks to far too much is stopped, and nothing of it
// remains.
func TestLayerBombIsStopped(t *testing.T) {
	r := newRig(t)
	const unpacked = 96 << 20
	var bomb bytes.Buffer
	z, err := gzip.NewWriterLevel(&bomb, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(z, h), zeros{}, unpacked); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	// Even its diffID is correct.
	m, blobs := imageOf(t, bomb.Bytes(), v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", h.Sum(nil))})
	r.raw(t, m, blobs)
	_, err = r.pull(r.client("amd64"), ref)
	var size *fetch.SizeError
	if !errors.As(err, &size) || !strings.Contains(err.Error(), m.Layers[0].Digest.String()) {
		t.Fatalf("err = %v", err)
	}
	left := int64(0)
	err = filepath.Walk(r.dir, func(_ string, i os.FileInfo, err error) error {
		if err == nil && i.Mode().IsRegular() {
			left += i.Size()
		}
		return err
	})
	if err != nil || left > 1<<20 {
		t.Errorf("%d bytes are left in the cache, %v", left, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A request to a registry that stops answering fails, for every kind of request.
func TestSilentRegistryIsGivenUp(t *testing.T) {
	for _, asked := range []string{"/v2/", "/manifests/v1"} {
		t.Run(asked, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Push(ref, fakesites.Image(t, "amd64", "x"))
			var times atomic.Int64
			r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
				if !strings.HasSuffix(target, asked) {
					return false
				}
				times.Add(1)
				w.Header().Set("Content-Length", "100")
				io.WriteString(w, "{")
				w.(http.Flusher).Flush()
				<-q.Context().Done()
				return true
			}
			c, mirrors := r.clientAndMirrors("amd64")
			mirrors.StallAfter = 500 * time.Millisecond
			_, err := r.pull(c, ref)
			if asked == "/manifests/v1" && (err == nil || !strings.Contains(err.Error(), "delivered no data")) {
				t.Errorf("%s: %v", asked, err)
			}
			if times.Load() == 0 {
				t.Errorf("%s was not asked for", asked)
			}
		})
	}
}

// The type of a manifest follows from its bytes, because no digest covers the header.
func TestTypeFollowsFromTheBytes(t *testing.T) {
	tar := fakesites.LayerTar(t, "x")
	m, blobs := imageOf(t, tar, hashOf(tar))
	for _, mediaType := range []types.MediaType{types.OCIManifestSchema1, ""} {
		r := newRig(t)
		m.MediaType = mediaType
		r.raw(t, m, blobs)
		serve := r.Answer
		r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
			return serve(otherType{w}, q, target)
		}
		img, err := r.pull(r.client("amd64"), ref)
		if err != nil || img.Target.MediaType != string(types.OCIManifestSchema1) {
			t.Errorf("%q: %+v, %v", mediaType, img, err)
		}
	}
}

// otherType sets the media type of an index in every answer.
type otherType struct{ http.ResponseWriter }

func (w otherType) Write(b []byte) (int, error) {
	w.Header().Set("Content-Type", string(types.OCIImageIndex))
	return w.ResponseWriter.Write(b)
}

// A digest from the user replaces the digest of the tag.
func TestPinnedDigest(t *testing.T) {
	r := newRig(t)
	right := fakesites.Image(t, "amd64", "right")
	digest, err := right.Digest()
	if err != nil {
		t.Fatal(err)
	}
	r.Push(ref, right)
	r.Push(ref, fakesites.Image(t, "amd64", "wrong")) // the tag has changed
	wanted := registry.Wanted{Name: "app", Reference: ref, Fixed: true, Digest: digest.String()}
	img, err := r.client("amd64").Resolve(t.Context(), wanted)
	if err != nil || img.Target.Digest != digest.String() || img.Reference != ref || img.Source.Site != "" {
		t.Errorf("%+v, %v", img, err)
	}
	for _, q := range r.Requests() {
		if strings.HasSuffix(q, "/manifests/v1") {
			t.Errorf("the tag was asked for: %s", q)
		}
	}
	// The pin is not remembered as the digest of the tag.
	wanted.Digest = ""
	img, err = r.client("amd64").Resolve(t.Context(), wanted)
	if err != nil || img.Target.Digest == digest.String() || img.Source.URL != r.URL()+"/registry.k8s.io/v2/team/app/manifests/v1" {
		t.Errorf("%+v, %v", img, err)
	}
}
