package registry_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"airlift/builder/fetch"
	"airlift/builder/registry"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

const ref = "registry.k8s.io/team/app:v1"

type rig struct {
	*fakesites.Upstream
	cache *fetch.Cache
	dir   string
	t     *testing.T
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	cache, err := fetch.OpenCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{fakesites.New(t), cache, dir, t}
}

func (r *rig) client(arch string) *registry.Client {
	r.t.Helper()
	c, _ := r.clientAndMirrors(arch)
	return c
}

func (r *rig) clientAndMirrors(arch string) (*registry.Client, *fetch.Mirrors) {
	r.t.Helper()
	var list []fetch.Mirror
	for _, s := range r.Mirrors() {
		m, err := fetch.ParseMirror(s)
		if err != nil {
			r.t.Fatal(err)
		}
		list = append(list, m)
	}
	mirrors, err := fetch.NewMirrors(http.DefaultTransport, list)
	if err != nil {
		r.t.Fatal(err)
	}
	client := fetch.New(r.cache, mirrors)
	client.RetryWait = time.Millisecond
	return registry.New(client, mirrors, arch), mirrors
}

func (r *rig) pull(c *registry.Client, reference string) (*registry.Image, error) {
	img, err := c.Resolve(context.Background(), registry.Wanted{Name: "app", Reference: reference, Fixed: true})
	if err != nil {
		return nil, err
	}
	for n := range img.Layers {
		if err := c.Pull(context.Background(), img, n, nil); err != nil {
			return nil, err
		}
	}
	return img, nil
}

func zstdLayer(t *testing.T, tar []byte) v1.Layer {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return otherDiffID{static.NewLayer(enc.EncodeAll(tar, nil), types.OCILayerZStd), tar}
}

// otherDiffID is a layer whose config has the digest of tar.
type otherDiffID struct {
	v1.Layer
	tar []byte
}

func (l otherDiffID) DiffID() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(l.tar))
	return h, err
}

// The cache has the uncompressed tar of a layer, for every compression in the registry.
func TestLayersAreStoredUncompressed(t *testing.T) {
	r := newRig(t)
	tars := [][]byte{fakesites.LayerTar(t, "one"), fakesites.LayerTar(t, "two"), fakesites.LayerTar(t, "three")}
	r.Push(ref, fakesites.ImageOf(t, "amd64",
		fakesites.GzipLayer(t, tars[0]), zstdLayer(t, tars[1]), fakesites.RawLayer(tars[2])))
	img, err := r.pull(r.client("amd64"), ref)
	if err != nil {
		t.Fatal(err)
	}
	for n, tar := range tars {
		if want := fmt.Sprintf("sha256:%x", sha256.Sum256(tar)); img.Layers[n].DiffID != want || img.Layers[n].Size != int64(len(tar)) {
			t.Errorf("layer %d is %+v, want %s of %d bytes", n, img.Layers[n], want, len(tar))
		}
		if !bytes.Equal(fakesites.Cached(t, r.cache, img.Layers[n].DiffID), tar) {
			t.Errorf("layer %d differs", n)
		}
	}
	if img.Target != img.Manifest || img.Target.MediaType != string(types.DockerManifestSchema2) {
		t.Errorf("target %+v, manifest %+v", img.Target, img.Manifest)
	}
	kept, err := os.ReadDir(filepath.Join(r.dir, "sha256"))
	if err != nil || len(kept) != 5 {
		t.Errorf("the cache has %d files, want manifest, config and 3 layers; %v", len(kept), err)
	}
}

func TestIndexIsTheTarget(t *testing.T) {
	r := newRig(t)
	r.PushIndex(ref, map[string]v1.Image{"amd64": fakesites.Image(t, "amd64", "x"), "arm64": fakesites.Image(t, "arm64", "x")})
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := r.pull(r.client(arch), ref)
		if err != nil {
			t.Fatal(err)
		}
		if !types.MediaType(img.Target.MediaType).IsIndex() || img.Target == img.Manifest {
			t.Errorf("target is %+v", img.Target)
		}
		if !strings.Contains(string(fakesites.Cached(t, r.cache, img.Config.Digest)), `"architecture":"`+arch+`"`) {
			t.Errorf("%s: the config is of another architecture", arch)
		}
		for _, d := range []string{img.Target.Digest, img.Manifest.Digest} {
			if got := fmt.Sprintf("sha256:%x", sha256.Sum256(fakesites.Cached(t, r.cache, d))); got != d {
				t.Errorf("%s has content with digest %s", d, got)
			}
		}
		// The digest also refers to the index.
		again, err := r.pull(r.client(arch), "registry.k8s.io/team/app@"+img.Target.Digest)
		if err != nil || again.Target != img.Target || again.Manifest != img.Manifest {
			t.Errorf("by digest: %+v, %v", again, err)
		}
	}
}

func TestMissingPlatformListsThoseThereAre(t *testing.T) {
	r := newRig(t)
	r.PushIndex(ref, map[string]v1.Image{"arm64": fakesites.Image(t, "arm64", "x")})
	r.Push("registry.k8s.io/team/single:v1", fakesites.Image(t, "arm64", "x"))
	for _, reference := range []string{ref, "registry.k8s.io/team/single:v1"} {
		_, err := r.pull(r.client("amd64"), reference)
		if err == nil || !strings.Contains(err.Error(), "linux/amd64, only for linux/arm64") || !strings.Contains(err.Error(), reference) {
			t.Errorf("err = %v", err)
		}
	}
}

func TestMissingImage(t *testing.T) {
	r := newRig(t)
	_, err := r.pull(r.client("amd64"), "registry.k8s.io/none:v1")
	var missing *fetch.MissingError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "registry.k8s.io/none:v1") {
		t.Errorf("err = %v", err)
	}
}

func TestMissingBlob(t *testing.T) {
	r := newRig(t)
	r.Push(ref, fakesites.Image(t, "amd64", "x"))
	r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
		if !strings.HasPrefix(target, "blobs.example.com") {
			return false
		}
		http.NotFound(w, q)
		return true
	}
	_, err := r.pull(r.client("amd64"), ref)
	if err == nil || !strings.Contains(err.Error(), "config of "+ref) {
		t.Errorf("err = %v", err)
	}
}

// Every wrong answer of a registry is an error.
func TestWrongContentIsRefused(t *testing.T) {
	good := fakesites.Image(t, "amd64", "x")
	m, err := good.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := good.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]string{
		"config":            "/blobs/" + m.Config.Digest.String(),
		"layer":             "/blobs/" + m.Layers[1].Digest.String(),
		"manifest of index": "/manifests/" + digest.String(),
		"nothing":           "",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.PushIndex(ref, map[string]v1.Image{"amd64": good})
			r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
				if wrong == "" || !strings.HasSuffix(target, wrong) {
					return false
				}
				w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
				io.WriteString(w, `{"schemaVersion":2}`)
				return true
			}
			_, err := r.pull(r.client("amd64"), ref)
			if (err != nil) != (wrong != "") {
				t.Errorf("err = %v", err)
			}
		})
	}
}

// A layer that matches its digest but not the config.
func TestLayerMustMatchItsDiffID(t *testing.T) {
	r := newRig(t)
	tar := fakesites.LayerTar(t, "real")
	r.Push(ref, fakesites.ImageOf(t, "amd64", otherDiffID{fakesites.RawLayer(tar), []byte("claimed")}))
	_, err := r.pull(r.client("amd64"), ref)
	var m *fetch.MismatchError
	if !errors.As(err, &m) || m.Want != fmt.Sprintf("%x", sha256.Sum256([]byte("claimed"))) || !strings.Contains(err.Error(), "uncompressed layer") {
		t.Errorf("err = %v", err)
	}
}

func TestSharedLayersTravelOnce(t *testing.T) {
	r := newRig(t)
	r.Push("registry.k8s.io/a:v1", fakesites.Image(t, "amd64", "a"))
	r.Push("ghcr.io/b:v1", fakesites.Image(t, "amd64", "b"))
	c := r.client("amd64")
	for _, reference := range []string{"registry.k8s.io/a:v1", "ghcr.io/b:v1"} {
		if _, err := r.pull(c, reference); err != nil {
			t.Fatal(err)
		}
	}
	blobs := 0
	for _, q := range r.Requests() {
		if strings.HasPrefix(q, "GET blobs.example.com") {
			blobs++
		}
	}
	if blobs != 2+3 { // configs and layers
		t.Errorf("%d blobs were fetched", blobs)
	}
}

// Tokens: the client uses the token service that the registry names, the mirror's own (at a
// private address and without TLS) or the server of another host. It downloads redirected blobs
// without the token.
func TestTokenAndRedirectedBlobs(t *testing.T) {
	for _, realm := range []string{"https://ghcr.io/token", "MIRROR/token", "http://localhost:PORT/registry.k8s.io/token"} {
		r := newRig(t)
		r.Push(ref, fakesites.Image(t, "amd64", "x"))
		mirror := r.URL() + "/registry.k8s.io"
		realm = strings.ReplaceAll(realm, "MIRROR", mirror)
		realm = strings.ReplaceAll(realm, "PORT", r.URL()[strings.LastIndex(r.URL(), ":")+1:])
		var leaked bool
		r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
			switch {
			case strings.Contains(target, "/token"):
				io.WriteString(w, `{"token":"opensesame"}`)
				return true
			case strings.HasPrefix(target, "registry.k8s.io/") && q.Header.Get("Authorization") != "Bearer opensesame":
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="registry.k8s.io"`, realm))
				w.WriteHeader(http.StatusUnauthorized)
				return true
			case strings.HasPrefix(target, "blobs.example.com") && q.Header.Get("Authorization") != "":
				leaked = true
			}
			return false
		}
		if _, err := r.pull(r.client("amd64"), ref); err != nil {
			t.Errorf("realm %s: %v", realm, err)
		}
		if leaked {
			t.Errorf("realm %s: the token went to the host that blobs are redirected to", realm)
		}
	}
}

// A mirror gets its own credentials, never the registry's credentials.
func TestMirrorsDoNotGetTheRegistrysPassword(t *testing.T) {
	r := newRig(t)
	r.Push(ref, fakesites.Image(t, "amd64", "x"))
	config := t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	host := strings.TrimPrefix(r.URL(), "http://")
	auth := func(user string) string {
		return base64.StdEncoding.EncodeToString([]byte(user + ":secret"))
	}
	text := fmt.Sprintf(`{"auths":{"registry.k8s.io":{"auth":%q},%q:{"auth":%q}}}`, auth("registry"), host, auth("mirror"))
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	users := map[string]bool{}
	r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
		user, _, ok := q.BasicAuth()
		users[user] = true
		if !ok && strings.HasPrefix(target, "registry.k8s.io") {
			w.Header().Set("WWW-Authenticate", "Basic realm=x")
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	if _, err := r.pull(r.client("amd64"), ref); err != nil {
		t.Fatal(err)
	}
	if users["registry"] || !users["mirror"] {
		t.Errorf("the mirror saw the users %v", users)
	}
}

func TestRefusalSaysHowToLogIn(t *testing.T) {
	r := newRig(t)
	r.Answer = func(w http.ResponseWriter, q *http.Request, target string) bool {
		if !strings.Contains(target, "/manifests/") {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	_, err := r.pull(r.client("amd64"), ref)
	if err == nil || !strings.Contains(fault.Hint(err), "docker login 127.0.0.1:") {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
}
