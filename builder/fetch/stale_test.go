package fetch

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/internal/fault"
)

// The next process removes what a killed one left, and nothing that is in use or can be continued.
func TestLeftFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	used, err := first.temporary()
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	old := time.Now().Add(-2 * keepDownloads)
	files := map[string]struct {
		at   time.Time
		kept bool
	}{
		"new.123":                  {time.Now(), false},
		"new.456":                  {old, false},
		"abc-def":                  {time.Now(), true},
		"abc-old":                  {old, false},
		filepath.Base(used.Name()): {old, true},
	}
	for name, f := range files {
		path := filepath.Join(dir, "partial", name)
		if path != used.Name() {
			if err := os.WriteFile(path, []byte("part"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, f.at, f.at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenCache(dir); err != nil {
		t.Fatal(err)
	}
	for name, f := range files {
		if _, err := os.Stat(filepath.Join(dir, "partial", name)); (err == nil) != f.kept {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A download stays if the process is interrupted while it looks for the content.
func TestInterruptionKeepsTheDownload(t *testing.T) {
	s := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) { whole(w, r) })
	c := newClient(t)
	d := Download{Name: "thing", URL: s.URL, SHA256: sum(content)}
	partial := c.Cache.partialPath(d.SHA256, s.URL)
	if err := os.WriteFile(partial, content[:1000], 0o644); err != nil {
		t.Fatal(err)
	}
	err := c.download(t.Context(), d, func() (bool, error) { return false, context.Canceled }, nil)
	if i, statErr := os.Stat(partial); !errors.Is(err, context.Canceled) || statErr != nil || i.Size() != 1000 {
		t.Errorf("%v, %v", err, statErr)
	}
}

// Each write to a cache that cannot be written has a hint.
func TestUnwritableCache(t *testing.T) {
	s := serve(t, func(_ int, w http.ResponseWriter, r *http.Request) { whole(w, r) })
	for name, do := range map[string]func(c *Client) error{
		"content":   func(c *Client) error { _, _, err := c.Cache.Put(t.Context(), strings.NewReader("x"), ""); return err },
		"fact":      func(c *Client) error { return c.Remember("key", "value") },
		"temporary": func(c *Client) error { _, err := c.Cache.Temporary(t.Context(), strings.NewReader("x")); return err },
		"download":  func(c *Client) error { _, err := get(t.Context(), c, s.URL, sum(content)); return err },
	} {
		c := newClient(t)
		partial := filepath.Join(c.Cache.dir, "partial")
		if err := errors.Join(os.Remove(partial), os.WriteFile(partial, nil, 0o644)); err != nil { // root may write to any directory
			t.Fatal(err)
		}
		if err := do(c); err == nil || !strings.Contains(fault.Hint(err), "--cache-dir") {
			t.Errorf("%s: %v\n%s", name, err, fault.Hint(err))
		}
	}
}
