package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// syntheticHost is the registry in the names of synthetic images.
const syntheticHost = "synthetic.example"

// A shape describes synthetic images.
type shape struct {
	name   string
	images int
	layers int   // of each image
	files  int   // in each layer
	size   int64 // of each file, in bytes
}

func (s shape) bytes() int64 { return int64(s.images) * int64(s.layers) * int64(s.files) * s.size }

// references are the images' names.
func (s shape) references() (list []string) {
	for i := range s.images {
		list = append(list, fmt.Sprintf("%s/%s:v%d", syntheticHost, s.name, i+1))
	}
	return list
}

// writeLayer writes one layer's tar. The same number always gives the same bytes, so they
// need not be stored.
func (s shape) writeLayer(w io.Writer, number int) error {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", s.name, number))
	content := newContent(seed)
	tw := tar.NewWriter(w)
	const perDir = 1000
	for i := range s.files {
		if i%perDir == 0 {
			dir := &tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("data/%d/%d/", number, i/perDir), Mode: 0o755}
			if err := tw.WriteHeader(dir); err != nil {
				return err
			}
		}
		file := &tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: s.size,
			Name: fmt.Sprintf("data/%d/%d/%d", number, i/perDir, i)}
		if err := tw.WriteHeader(file); err != nil {
			return err
		}
		if _, err := io.CopyN(tw, content, s.size); err != nil {
			return err
		}
	}
	return tw.Close()
}

// content is endless data that compresses to about 40 percent: of every four blocks, one is
// random, one has half of its bits random, and two repeat earlier blocks with a few changed
// bytes.
type content struct {
	random *rand.ChaCha8
	pool   [16][block]byte
	buffer [4 * block]byte
	left   []byte
}

const block = 16 << 10

func newContent(seed [32]byte) *content {
	c := &content{random: rand.NewChaCha8(seed)}
	for i := range c.pool {
		c.random.Read(c.pool[i][:]) // never fails
	}
	return c
}

func (c *content) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		c.random.Read(c.buffer[:2*block])
		for i := block; i < 2*block; i++ {
			c.buffer[i] = 'a' + c.buffer[i]&15
		}
		for i := 2; i < 4; i++ {
			n := c.random.Uint64()
			copy(c.buffer[i*block:], c.pool[n%uint64(len(c.pool))][:])
			c.buffer[i*block+int(n>>32%block)] ^= byte(n >> 8)
		}
		c.left = c.buffer[:]
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

// A synthetic is a registry on loopback with the images of a shape. It generates the
// uncompressed layers for each request.
type synthetic struct {
	shape     shape
	manifests map[string][]byte // by digest
	tags      map[string]string // "v1": digest
	configs   map[string][]byte
	layers    map[string]int // number, by digest
	sizes     map[string]int64
	server    *http.Server
	url       string
}

// descriptor is an OCI descriptor (image-spec, descriptor.md).
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// serveSynthetic computes the layers' digests and serves the images.
func serveSynthetic(s shape) (*synthetic, error) {
	r := &synthetic{shape: s, manifests: map[string][]byte{}, tags: map[string]string{}, configs: map[string][]byte{},
		layers: map[string]int{}, sizes: map[string]int64{}}
	digests := make([]string, s.images*s.layers)
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(2)
	for n := range digests {
		group.Go(func() error {
			hash := sha256.New()
			var size counter
			if err := s.writeLayer(io.MultiWriter(hash, &size), n); err != nil {
				return err
			}
			digests[n] = "sha256:" + hex.EncodeToString(hash.Sum(nil))
			mu.Lock()
			defer mu.Unlock()
			r.layers[digests[n]], r.sizes[digests[n]] = n, int64(size)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i := range s.images {
		if err := r.addImage(fmt.Sprintf("v%d", i+1), digests[i*s.layers:(i+1)*s.layers]); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.url = "http://" + listener.Addr().String()
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go r.server.Serve(listener) // until Close
	return r, nil
}

func (r *synthetic) Close() error { return r.server.Close() }

func (r *synthetic) addImage(tag string, diffIDs []string) error {
	config, err := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs}})
	if err != nil {
		return err
	}
	var layers []descriptor
	for _, d := range diffIDs {
		layers = append(layers, descriptor{"application/vnd.oci.image.layer.v1.tar", d, r.sizes[d]})
	}
	r.configs[digestOf(config)] = config
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType,
		"config": descriptor{"application/vnd.oci.image.config.v1+json", digestOf(config), int64(len(config))}, "layers": layers})
	if err != nil {
		return err
	}
	r.manifests[digestOf(manifest)] = manifest
	r.tags[tag] = digestOf(manifest)
	return nil
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// ServeHTTP answers the requests of a pull: distribution-spec, "Pull".
func (r *synthetic) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/v2/" {
		return // 200: this is a registry
	}
	kind, reference, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/"+r.shape.name+"/"), "/")
	switch kind {
	case "manifests":
		if digest, ok := r.tags[reference]; ok {
			reference = digest
		}
		r.document(w, req, r.manifests[reference], manifestType, reference)
	case "blobs":
		number, ok := r.layers[reference]
		if !ok {
			r.document(w, req, r.configs[reference], "application/octet-stream", reference)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(r.sizes[reference]))
		if req.Method != http.MethodHead {
			_ = r.shape.writeLayer(w, number) // an error means that the client has disconnected
		}
	default:
		http.NotFound(w, req)
	}
}

func (r *synthetic) document(w http.ResponseWriter, req *http.Request, data []byte, mediaType, digest string) {
	if data == nil {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
}
