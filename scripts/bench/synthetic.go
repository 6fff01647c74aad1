package main

import (
	"archive/tar"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// syntheticHost is the registry in the names of synthetic images.
const syntheticHost = "synthetic.example"

// A shape describes synthetic images.
type shape struct {
	images int
	layers int   // of each image
	files  int   // in each layer
	size   int64 // of each file, in bytes
}

func (s shape) bytes() int64 { return int64(s.images) * int64(s.layers) * int64(s.files) * s.size }

// serveSynthetic serves a shape's images from a registry on loopback that stores its blobs
// in dir. It returns their names and the --mirror flag's value for bundle build.
func serveSynthetic(s shape, dir string) (references []string, mirror string, stop func(), err error) {
	server := httptest.NewServer(registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)), registry.Logger(log.New(io.Discard, "", 0))))
	defer func() {
		if err != nil {
			server.Close()
		}
	}()
	for i := range s.images {
		img, err := s.image(i)
		if err != nil {
			return nil, "", nil, err
		}
		repository := fmt.Sprintf("/scale:v%d", i+1)
		ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + repository)
		if err != nil {
			return nil, "", nil, err
		}
		if err := remote.Write(ref, img); err != nil {
			return nil, "", nil, err
		}
		references = append(references, syntheticHost+repository)
	}
	return references, syntheticHost + "=" + server.URL, server.Close, nil
}

func (s shape) image(number int) (v1.Image, error) {
	var layers []v1.Layer
	for i := range s.layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return s.layer(number*s.layers + i), nil })
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux"})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layers...)
}

// layer returns one layer's tar. The same number always gives the same bytes.
func (s shape) layer(number int) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(s.write(tar.NewWriter(w), number)) }()
	return r
}

func (s shape) write(w *tar.Writer, number int) error {
	random := letters{rand.NewChaCha8([32]byte{byte(number), byte(number >> 8)})}
	for i := range s.files {
		const perDir = 1000
		file := &tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: s.size, Name: fmt.Sprintf("data/%d/%d/%d", number, i/perDir, i)}
		if err := w.WriteHeader(file); err != nil {
			return err
		}
		if _, err := io.CopyN(w, random, s.size); err != nil {
			return err
		}
	}
	return w.Close()
}

// letters is random text that compresses to half its size.
type letters struct{ random *rand.ChaCha8 }

func (l letters) Read(b []byte) (int, error) {
	n, err := l.random.Read(b)
	for i := range b[:n] {
		b[i] = 'a' + b[i]&15
	}
	return n, err
}
