package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writes a bundle from files listed in BENCH_FILES dir
func TestTmpWrite(t *testing.T) {
	dir := os.Getenv("BENCH_DIR")
	if dir == "" {
		t.Skip()
	}
	m := &Manifest{FormatVersion: 1, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "none"}
	des, _ := os.ReadDir(dir)
	paths := map[string]string{}
	for i, de := range des {
		p := filepath.Join(dir, de.Name())
		b, _ := os.ReadFile(p)
		s := sha256.Sum256(b)
		n := fmt.Sprintf("bin/f%03d", i)
		paths[n] = p
		m.Entries = append(m.Entries, Entry{n, int64(len(b)), hex.EncodeToString(s[:])})
		m.Components = append(m.Components, component(fmt.Sprintf("c%03d", i), n))
	}
	for _, l := range []Level{Best, Fast} {
		start := time.Now()
		sum, err := WriteFile(context.Background(), os.Getenv("BENCH_OUT"), bytes.NewReader(stub()), m, Options{l}, func(e Entry) (io.ReadCloser, error) { return os.Open(paths[e.Name]) }, nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("level %d: %d -> %d in %v\n", l, sum.UnpackedSize, sum.Size, time.Since(start))
		if l == Best {
			os.Rename(os.Getenv("BENCH_OUT"), os.Getenv("BENCH_OUT")+".best")
		}
	}
}

func TestTmpRead(t *testing.T) {
	p := os.Getenv("BENCH_OUT") + ".best"
	if os.Getenv("BENCH_OUT") == "" {
		t.Skip()
	}
	for range 3 {
		start := time.Now()
		f, err := Open(p)
		if err != nil {
			t.Fatal(err)
		}
		o := time.Since(start)
		f.Manifest()
		mt := time.Since(start)
		start = time.Now()
		s, _ := f.Stream(context.Background())
		if err := readAll(s); err != nil {
			t.Fatal(err)
		}
		s.Close()
		st := time.Since(start)
		start = time.Now()
		if err := f.Verify(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("open %v manifest %v stream %v verify %v\n", o, mt, st, time.Since(start))
		f.Close()
	}
	b, _ := os.ReadFile("/proc/self/status")
	for _, l := range bytes.Split(b, []byte("\n")) {
		if bytes.HasPrefix(l, []byte("VmHWM")) {
			fmt.Println(string(l))
		}
	}
}
