package images_test

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/bundle"
	"airlift/bundle/encoder"
	"airlift/installer/registry/images"
	"airlift/scripts/fixtures/testbundle"
)

// memoryServer is set in the process of BenchmarkMemory that serves: the path of the bundle.
const memoryServer = "AIRLIFT_REGISTRY_MEMORY_SERVER"

func TestMain(m *testing.M) {
	path := os.Getenv(memoryServer)
	if path == "" {
		os.Exit(m.Run())
	}
	file, err := bundle.Open(path)
	if err != nil {
		panic(err)
	}
	r := images.New(images.Options{Cache: filepath.Join(filepath.Dir(path), "cache"), Limit: 4 << 30, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err := r.Set([]*bundle.File{file}); err != nil {
		panic(err)
	}
	s := httptest.NewTLSServer(r)
	fmt.Println(s.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A synthetic layer has half of its bits random.
func synthetic(seed uint64, size int64) io.Reader {
	return io.LimitReader(nibbles{rand.NewChaCha8([32]byte{byte(seed)})}, size)
}

type nibbles struct{ source *rand.ChaCha8 }

func (n nibbles) Read(p []byte) (int, error) {
	got, err := n.source.Read(p)
	for i := range p[:got] {
		p[i] &= 0x0f
	}
	return got, err
}

// writeLarge writes a bundle with an image of 20 layers, each with size bytes, of which every fourth is compressed. It
// returns the digests of the blobs.
func writeLarge(b *testing.B, path string, size int64) (digests []string) {
	b.Helper()
	all := testbundle.NewImages()
	all.AddCompressed(b, "registry.example/app:v1")
	img := &all.Manifest.Images[0]
	seeds := map[string]uint64{}
	var manifest strings.Builder
	var diffIDs []string
	for n := range uint64(20) {
		tar, blob := sha256.New(), sha256.New()
		var counted counter
		out := io.WriteCloser(nopCloser{io.MultiWriter(blob, &counted)})
		l := bundle.Layer{Size: size}
		if n%4 == 0 {
			var err error
			if out, err = (encoder.Recipe{Encoder: "go-gzip-6", Header: []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff")}).NewWriter(out); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := io.Copy(io.MultiWriter(tar, out), synthetic(n, size)); err != nil {
			b.Fatal(err)
		}
		if err := out.Close(); err != nil {
			b.Fatal(err)
		}
		l.DiffID = fmt.Sprintf("sha256:%x", tar.Sum(nil))
		d := fmt.Sprintf("sha256:%x", blob.Sum(nil))
		if n%4 == 0 {
			l.Compressed = &bundle.Compressed{Digest: d, Size: int64(counted), Encoder: "go-gzip-6", Header: "1f8b08000000000000ff"}
		}
		digests, diffIDs = append(digests, d), append(diffIDs, strconv.Quote(l.DiffID))
		img.Layers = append(img.Layers, l)
		seeds[bundle.BlobName(l.DiffID)] = n
		fmt.Fprintf(&manifest, `,{"mediaType":"x","digest":"%s","size":%d}`, d, counted)
	}
	all.Manifest.Entries = nil
	config := all.Blob("c", []byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[`+strings.Join(diffIDs, ",")+`]}}`))
	img.Config = config
	img.Manifest = all.Blob("application/vnd.oci.image.manifest.v1+json", fmt.Appendf(nil, `{"schemaVersion":2,"config":{"mediaType":"c","digest":"%s","size":%d},"layers":[%s]}`, config.Digest, config.Size, manifest.String()[1:]))
	img.Target = img.Manifest
	for _, l := range img.Layers {
		all.Manifest.Entries = append(all.Manifest.Entries, bundle.Entry{Name: bundle.BlobName(l.DiffID), Size: size, SHA256: strings.TrimPrefix(l.DiffID, "sha256:")})
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		b.Fatal(err)
	}
	draft, err := bundle.WriteDraft(b.Context(), path, bundle.Executables{Launcher: self, Installer: []byte("installer")}, &all.Manifest, bundle.Fastest, func(e bundle.Entry) (io.ReadCloser, error) {
		if seed, ok := seeds[e.Name]; ok {
			return io.NopCloser(synthetic(seed, size)), nil
		}
		return io.NopCloser(strings.NewReader(string(all.Content[e.Name]))), nil
	}, nil)
	if err == nil {
		defer draft.Discard()
		err = draft.Replace()
	}
	if err != nil {
		b.Fatal(err)
	}
	return digests
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// BenchmarkMemory measures a process that serves a bundle of 2 GB to ten nodes with three streams each: its peak, and
// its memory when it is idle again.
//
//	go test -run '^$' -bench Memory -benchtime 1x ./installer/registry/images
func BenchmarkMemory(b *testing.B) {
	size, err := strconv.ParseInt(cmp.Or(os.Getenv("AIRLIFT_REGISTRY_MEMORY_LAYER"), strconv.Itoa(100<<20)), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "bundle")
	digests := writeLarge(b, path, size)
	for b.Loop() {
		os.RemoveAll(filepath.Join(filepath.Dir(path), "cache"))
		measure(b, path, digests)
	}
}

func measure(b *testing.B, path string, digests []string) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), memoryServer+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	b.ReportMetric(memory(b, cmd.Process.Pid, "VmRSS"), "MiB-before")
	client := httptest.NewTLSServer(nil).Client()
	client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	var clients sync.WaitGroup
	for range 10 {
		wanted := make(chan string)
		clients.Go(func() {
			defer close(wanted)
			for _, d := range digests {
				wanted <- d
			}
		})
		for range 3 {
			clients.Go(func() {
				for d := range wanted {
					resp, err := client.Get(strings.TrimSpace(url) + blobPath("registry.example/app", d))
					if err != nil {
						b.Error(err)
						continue
					}
					n, err := io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if err != nil || resp.StatusCode != 200 {
						b.Errorf("%s, %d bytes, %v", resp.Status, n, err)
					}
				}
			})
		}
	}
	clients.Wait()
	b.ReportMetric(memory(b, cmd.Process.Pid, "VmHWM"), "MiB-peak")
	b.ReportMetric(memory(b, cmd.Process.Pid, "RssAnon"), "MiB-anonymous-end")
	time.Sleep(5 * time.Second)
	b.ReportMetric(memory(b, cmd.Process.Pid, "VmRSS"), "MiB-idle")
}

// memory returns a field of /proc/PID/status in MiB.
func memory(b *testing.B, pid int, field string) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), field+":")
	var kib float64
	if _, err := fmt.Sscanf(rest, "%f kB", &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
