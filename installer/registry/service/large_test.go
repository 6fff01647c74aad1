package service

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"airlift/bundle"
	"airlift/bundle/head"
)

// sparse writes a bundle of 30 GB to a directory of kept files: the rest of its payload is a hole, which has digests. It
// returns its ID, its size, and its last bytes: the digests and the trailer.
func sparse(t *testing.T, dir string) (id string, size int64, end []byte) {
	t.Helper()
	path, data, _ := sample(t, 1)
	small, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	tr := small.Trailer()
	payload := data[tr.PayloadOffset:][:tr.PayloadSize]
	tr.PayloadSize = 30 << 30
	sums := make([]byte, 0, tr.PayloadSize/head.PieceSize*sha256.Size)
	hole := sha256.Sum256(make([]byte, head.PieceSize))
	for at := uint64(0); at < tr.PayloadSize; at += head.PieceSize {
		sum := hole
		if at < uint64(len(payload)) {
			piece := make([]byte, head.PieceSize)
			copy(piece, payload[at:])
			sum = sha256.Sum256(piece)
		}
		sums = append(sums, sum[:]...)
	}
	frame := head.EncodeDigests(sums)
	tr.DigestsSHA256 = sha256.Sum256(frame)
	trailer := tr.Encode()
	id, size, end = fmt.Sprintf("%x", sha256.Sum256(trailer)), int64(tr.FileSize()), append(frame, trailer...)

	f, err := os.Create(filepath.Join(dir, id))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at, part := range map[int64][]byte{
		0: data[:tr.PayloadOffset-head.HeaderSize], int64(tr.PayloadOffset) - head.HeaderSize: head.Header{FileSize: tr.FileSize()}.Encode(),
		int64(tr.PayloadOffset): payload, tr.DigestsOffset(): end,
	} {
		if _, err := f.WriteAt(part, at); err != nil {
			t.Fatal(err)
		}
	}
	return id, size, end
}

// A file of 30 GB is opened and served without being read into memory: a few megabytes are allocated for its digests.
func TestLargeFile(t *testing.T) {
	var id string
	var size int64
	var end []byte
	var before, after runtime.MemStats
	r := start(t, func(r *rig) {
		id, size, end = sparse(t, r.settings.Directory)
		runtime.ReadMemStats(&before)
	})
	if !r.state().Serves(id) {
		t.Fatal(r.logged)
	}
	client := r.client(t, r.kubelet(t, node))
	for _, c := range []struct {
		name string
		at   int64
		body []byte
	}{
		{"the end", size - 1<<20, end[len(end)-1<<20:]},
		{"where the digests begin", size - int64(len(end)) - 1000, append(make([]byte, 1000), end[:1000]...)},
		{"behind 2 GB", 2<<30 - 500, make([]byte, 1<<20)},
		{"behind 4 GB", 4<<30 - 500, make([]byte, 1<<20)},
		{"behind 29 GB", 29 << 30, make([]byte, 1<<20)},
	} {
		header := map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", c.at, c.at+int64(len(c.body))-1)}
		resp, body, err := r.send(t, client, sending{path: "/bundles/" + id, header: header})
		if err != nil || resp.StatusCode != http.StatusPartialContent || !bytes.Equal(body, c.body) {
			t.Errorf("%s: %v with %d bytes, %v", c.name, resp, len(body), err)
		}
		if want := fmt.Sprintf("bytes %d-%d/%d", c.at, c.at+int64(len(c.body))-1, size); resp.Header.Get("Content-Range") != want {
			t.Errorf("%s: %q, want %q", c.name, resp.Header.Get("Content-Range"), want)
		}
	}
	// 64 MiB in one answer need no more memory than 1 MiB.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/bundles/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-", size-int64(len(end))-64<<20))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 64<<20+int64(len(end)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 48<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}
