package fetch_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"airlift/builder/fetch"
	"airlift/internal/fault"
)

// Release sites are behind proxies that answer with a page and the status 200.
func TestPageInsteadOfAFile(t *testing.T) {
	page := "\ufeff <!doctype html><html><body>blocked</body></html>"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(page))
	}))
	defer server.Close()
	cache, err := fetch.OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mirrors, err := fetch.NewMirrors(fetch.Transport(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := fetch.New(cache, mirrors)
	_, _, textErr := c.Text(t.Context(), server.URL+"/stable.txt")
	_, _, sumErr := c.Checksum(t.Context(), server.URL+"/kubelet.sha256", server.URL+"/kubelet")
	_, fileErr := c.Get(t.Context(), fetch.Download{Name: "kubelet", URL: server.URL + "/kubelet", SHA256: strings.Repeat("a", 64)})
	for name, err := range map[string]error{"text": textErr, "checksum": sumErr, "file": fileErr} {
		if err == nil || !strings.Contains(err.Error(), "returned a web page") || fault.Hint(err) != fetch.PageHint {
			t.Errorf("%s: %v (hint %q)", name, err, fault.Hint(err))
		}
	}
	// A file that begins like a page is one if its type is another.
	if err := fetch.NotAPage("x", []byte("{}")); err != nil {
		t.Error(err)
	}
}
