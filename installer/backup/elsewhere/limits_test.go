package elsewhere

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/backup/target"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/s3host"
	_ "airlift/scripts/fixtures/seed"
)

// hostileS3 is a server whose lists never end, whatever its answers have.
func hostileS3(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *Store {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(answer))
	t.Cleanup(server.Close)
	return place{url: "s3://backups/plant", config: s3host.Config(server.URL)}.store(t)
}

// page begins a page of a list that has no end.
func page(w http.ResponseWriter, r *http.Request, n int) {
	w.Header().Set("Content-Type", "application/xml")
	if r.URL.Query().Has("uploads") {
		fmt.Fprintf(w, "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k%d</NextKeyMarker><NextUploadIdMarker>u%d</NextUploadIdMarker>", n, n)
		return
	}
	fmt.Fprintf(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t%d</NextContinuationToken>", n)
}

// TestEndlessListsOfS3: a server whose list has no end, or whose answer has none, ends the command with an error, and not its memory.
func TestEndlessListsOfS3(t *testing.T) {
	n := 0
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"pages without objects": func(w http.ResponseWriter, r *http.Request) { n++; page(w, r, n) },
		"pages of objects of others": func(w http.ResponseWriter, r *http.Request) {
			n++
			page(w, r, n)
			for i := range 250 {
				fmt.Fprintf(w, "<Contents><Key>plant/%d-%d</Key><Size>1</Size></Contents><Upload><Key>plant/backup</Key><UploadId>%d-%d</UploadId></Upload>", n, i, n, i)
			}
		},
		"an answer without an end": func(w http.ResponseWriter, r *http.Request) {
			page(w, r, 1)
			for {
				if _, err := w.Write(bytes.Repeat([]byte("<Contents/><Upload/>"), 1000)); err != nil {
					return
				}
			}
		},
		"a key without an end": func(w http.ResponseWriter, r *http.Request) {
			page(w, r, 1)
			_, _ = w.Write([]byte("<Contents><Key>"))
			for {
				if _, err := w.Write(bytes.Repeat([]byte("k"), 10_000)); err != nil {
					return
				}
			}
		},
		"directories": func(w http.ResponseWriter, r *http.Request) {
			n++
			page(w, r, n)
			for i := range 250 {
				fmt.Fprintf(w, "<CommonPrefixes><Prefix>plant/%d-%d/</Prefix></CommonPrefixes>", n, i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := hostileS3(t, func(w http.ResponseWriter, r *http.Request) {
				answer(w, r)
				if r.URL.Query().Has("uploads") {
					fmt.Fprint(w, "</ListMultipartUploadsResult>")
				} else {
					fmt.Fprint(w, "</ListBucketResult>")
				}
			})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, err := s.List(t.Context())
			failed(t, name, err, "lists too much")
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<20 {
				t.Errorf("%d MB are kept", grown>>20)
			}
			if err := s.Forget(t.Context(), target.Copy{Name: "backup"}); err == nil {
				t.Error("the list of uploads has no end")
			}
		})
	}
}

// TestLongList: a bucket with as many objects as a server may list in pages is listed.
func TestLongList(t *testing.T) {
	const pages = 12
	n := 0
	s := hostileS3(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		fmt.Fprintf(w, "<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>t%d</NextContinuationToken>", n < pages, n)
		for i := range pageSize {
			fmt.Fprintf(w, "<Contents><Key>plant/%d-%d-%s</Key><Size>1</Size><ETag>&#34;d41d8cd98f00b204e9800998ecf8427e&#34;</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>",
				n, i, strings.Repeat("%F0%9F%98%80", 250)) // the longest keys
		}
		fmt.Fprint(w, "</ListBucketResult>")
	})
	if list, err := s.List(t.Context()); err != nil || len(list) != pages*pageSize {
		t.Errorf("%d, %v", len(list), err)
	}
}

func TestEndlessDirectoryOfSFTP(t *testing.T) {
	h, p := inProcess(t)
	p.put(t, "a-file", []byte("x"))
	h.ListForever(true)
	s := p.store(t)
	_, err := s.List(t.Context())
	failed(t, "a directory without an end", err, "lists too much")
	if item, err := p.store(t).Find(t.Context(), "a-file"); err != nil || item != (Item{"a-file", 1}) {
		t.Errorf("%+v, %v", item, err)
	}
}

// TestFind: one file is found without a list, and nothing else counts as a file.
func TestFind(t *testing.T) {
	for name, p := range map[string]place{"SFTP": func() place { _, p := inProcess(t); return p }(), "S3": func() place { h := s3host.Start(t, false); return bucket(t, h.Endpoint, h.Dir) }()} {
		p.put(t, "a-file", []byte("123"))
		if err := os.Mkdir(filepath.Join(p.dir, "a-directory"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := p.store(t)
		if item, err := s.Find(t.Context(), "a-file"); err != nil || item != (Item{"a-file", 3}) {
			t.Errorf("%s: %+v, %v", name, item, err)
		}
		for _, missing := range []string{"b-file", "a-directory"} {
			if item, err := s.Find(t.Context(), missing); !errors.Is(err, ErrMissing) {
				t.Errorf("%s: %s: %+v, %v", name, missing, item, err)
			}
		}
	}
}

// TestSizesAreClaims: whatever size a target has listed, not more than that is written, and another size is an error.
func TestSizesAreClaims(t *testing.T) {
	_, p := inProcess(t)
	real := bytes.Repeat([]byte("0123456789"), 30_000)
	p.put(t, "a-file", real)
	s := p.store(t)
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.OneOf(rapid.Int64Range(0, 400_000), rapid.SampledFrom([]int64{-1, math.MinInt64, math.MaxInt64, math.MaxInt64 - 1, int64(len(real)), int64(len(real)) - 1, int64(len(real)) + 1})).Draw(rt, "size")
		var out bytes.Buffer
		err := s.Fetch(t.Context(), "a-file", size, &out)
		if (err == nil) != (size == int64(len(real))) || int64(out.Len()) > max(size, 0) && err == nil || out.Len() > len(real) || size < int64(len(real)) && int64(out.Len()) > max(size, 0) {
			rt.Fatalf("size %d: %d bytes, %v", size, out.Len(), err)
		}
	})
}

// TestDeadListIsNotTooLong: another error during a list keeps its own text.
func TestDeadListIsNotTooLong(t *testing.T) {
	s := hostileS3(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	began := time.Now()
	if _, err := s.List(t.Context()); err == nil || strings.Contains(err.Error(), "too much") || fault.Hint(err) == "" {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}
