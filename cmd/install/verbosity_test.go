package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRequestsAreLogged: -v 2 prints each request to the API server on standard
// error, and not among the results.
func TestRequestsAreLogged(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind": "SecretList", "apiVersion": "v1", "items": []}`)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "admin.conf")
	must(t, os.WriteFile(kubeconfig, []byte(`{"kind": "Config", "apiVersion": "v1", "current-context": "x",
"clusters": [{"name": "x", "cluster": {"server": "`+server.URL+`"}}], "contexts": [{"name": "x", "context": {"cluster": "x"}}]}`), 0o600))

	quiet, stderr, code := install(t, "token", "list", "-v", "1", "--kubeconfig", kubeconfig)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	stdout, stderr, code := install(t, "token", "list", "-v", "2", "--kubeconfig", kubeconfig)
	if code != 0 || stdout != quiet {
		t.Errorf("exit code %d, printed %q, with -v 1 %q", code, stdout, quiet)
	}
	request := "GET " + server.URL + "/api/v1/namespaces/kube-system/secrets"
	if !strings.HasPrefix(stderr, request) || !strings.Contains(stderr, ": 200 OK, after ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%q is not one line for the request %s", stderr, request)
	}
}
