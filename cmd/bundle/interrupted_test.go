package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/pgzip"

	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/seed"
)

// A packedLayer is a layer in the compression of podman, whose encoder is found after many others.
type packedLayer struct {
	v1.Layer
	tar []byte
}

func (p packedLayer) DiffID() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(p.tar))
	return h, err
}

func largeLayer(t *testing.T) v1.Layer {
	t.Helper()
	var text bytes.Buffer
	r := rand.New(rand.NewPCG(1, 2))
	for text.Len() < 6<<20 {
		fmt.Fprintf(&text, "usr/lib/file%d 0644 %d\n", r.IntN(2000), r.Uint64())
	}
	raw, err := io.ReadAll(must(fakesites.FilesLayer(t, map[string][]byte{"list": text.Bytes()}).Uncompressed()))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := pgzip.NewWriter(&packed)
	if _, err := z.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packedLayer{static.NewLayer(packed.Bytes(), types.OCILayer), raw}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A trigger counts lines.
type trigger struct {
	bytes.Buffer
	count func()
}

func (l *trigger) Write(p []byte) (int, error) {
	for range bytes.Count(p, []byte("\n")) {
		l.count()
	}
	return l.Buffer.Write(p)
}

// A build that was interrupted or killed at any moment changes nothing for the next one: the bundle has the same bytes as
// without an interruption, and no temporary file stays.
func TestInterruptedBuilds(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	const app = "docker.io/team/app:1"
	u.Push(app, fakesites.ImageOf(t, "amd64", largeLayer(t)))
	var moments atomic.Int64 // requests and lines of progress of the running build
	var strike func(moment int64)
	u.Answer = func(http.ResponseWriter, *http.Request, string) bool {
		if n := moments.Add(1); strike != nil {
			strike(n)
		}
		return false
	}
	args := buildArgs(u, "--image", app)
	build := func(s shell) (text string, code int, sum string) {
		t.Helper()
		_, errs, exit := s.run(args...)
		content, _ := os.ReadFile(filepath.Join(s.dir, "install"))
		return errs, int(exit), fmt.Sprintf("%x", sha256.Sum256(content))
	}
	text, code, want := build(newShell(t))
	if code != 0 {
		t.Fatalf("%d: %s", code, text)
	}
	all := moments.Load() + int64(strings.Count(text, "\n"))

	r := rand.New(rand.NewPCG(seed.Value(t), 0))
	struck := map[string]int{}
	for range 5 {
		s := newShell(t)
		var told []string
		for range 1 + r.IntN(2) {
			sent := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}[r.IntN(3)]
			at, late := 1+r.Int64N(all), time.Duration(r.IntN(400))*time.Millisecond
			c := s.command(args...)
			moments.Store(0)
			strike = func(n int64) {
				if n == at {
					time.AfterFunc(late, func() { _ = c.Process.Signal(sent) })
				}
			}
			out := &trigger{count: func() { strike(moments.Add(1)) }}
			c.Stderr = out
			_ = c.Run()
			strike = nil
			told = append(told, fmt.Sprintf("%v %v after moment %d of %d: %v", sent, late, at, all, c.ProcessState))
			if c.ProcessState.ExitCode() != 0 {
				struck[sent.String()]++
			}
		}
		text, code, got := build(s)
		if code != 0 || got != want {
			t.Errorf("after %q: exit code %d, sha256 %s, want %s\n%s", told, code, got, want, text)
		}
		for _, dir := range []string{s.dir, filepath.Join(s.dir, "cache", "airlift", "bundle", "partial")} {
			list, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if !slices.Contains([]string{"install", "install.provenance.json", "stub", "cache"}, e.Name()) {
					t.Errorf("after %q: %s stays in %s", told, e.Name(), dir)
				}
			}
		}
	}
	t.Logf("ended by %v", struck)
	if len(struck) == 0 {
		t.Error("no build was interrupted")
	}
}
