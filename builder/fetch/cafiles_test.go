package fetch_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder/fetch"
	"airlift/internal/fault"
)

// Files that users give as the CA of a registry, or keep in certs.d.
func TestFilesThatAreNoCertificates(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	der := server.Certificate().Raw
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")})
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("secret")})
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"DER": {der, "openssl x509 -inform der"}, "key": {key, "the certificate"}, "empty": {nil, "copy it again"},
		"other": {[]byte("hello"), "--registry-ca"},
	} {
		path := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{path, "registry.example=" + path} {
			if _, err := fetch.NewTrust([]string{value}); err == nil || !strings.Contains(fault.Hint(err), c.want) {
				t.Errorf("%s: %v (hint %q), want %q", name, err, fault.Hint(err), c.want)
			}
		}
	}
	host := strings.TrimPrefix(server.URL, "https://")
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"CA in DER":           {map[string][]byte{"ca.crt": der}, "openssl x509 -inform der"},
		"encrypted key":       {map[string][]byte{"a.cert": certificate, "a.key": encrypted}, "openssl pkey"},
		"key as certificate":  {map[string][]byte{"a.cert": key, "a.key": key}, "the certificate"},
		"certificate as key":  {map[string][]byte{"a.cert": certificate, "a.key": certificate}, "the private key"},
		"certificate, no key": {map[string][]byte{"a.cert": certificate}, "NAME.key"},
	} {
		dir := t.TempDir()
		for file, content := range c.files {
			path := filepath.Join(dir, host, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		trust, err := fetch.NewTrust([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trust.Transport().RoundTrip(req); err == nil || !strings.Contains(fault.Hint(err), c.want) { //nolint:bodyclose // it fails
			t.Errorf("%s: %v (hint %q), want %q", name, err, fault.Hint(err), c.want)
		}
	}
}
