package health

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	for status, want := range map[int]string{200: "", 401: "", 403: "", 500: "its health check returned 500 Internal Server Error: not ready: etcd"} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("[+]ping ok\n[-]etcd failed: reason withheld\n"))
		}))
		got := ""
		if err := Check(t.Context(), server.URL); err != nil {
			got = err.Error()
		}
		server.Close()
		if got != want {
			t.Errorf("%d: %q, want %q", status, got, want)
		}
		if err := Check(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), "it does not answer") {
			t.Errorf("closed: %v", err)
		}
	}
}
