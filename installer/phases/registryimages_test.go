package phases

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"airlift/installer/registry/images"
	"airlift/internal/fault"
)

// TestServedBy: a node knows what any control plane serves, also if others are off, or are of an earlier version.
func TestServedBy(t *testing.T) {
	one, two := images.Served{Reference: "quay.io/one:1", Complete: true}, images.Served{Reference: "quay.io/two:1"}
	pool := x509.NewCertPool()
	serve := func(status int, list ...images.Served) netip.AddrPort {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/images" {
				t.Errorf("asked for %s", r.URL)
			}
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(list)
		}))
		t.Cleanup(s.Close)
		pool.AddCert(s.Certificate())
		return netip.MustParseAddrPort(s.Listener.Addr().String())
	}
	first, second, old := serve(200, one), serve(200, one, two), serve(404)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	off := netip.MustParseAddrPort("127.0.0.1:1")
	for _, servers := range [][]netip.AddrPort{{first, second}, {off, first, old, second}} {
		if list, err := servedBy(t.Context(), client, servers); err != nil || !reflect.DeepEqual(list, []images.Served{one, two}) {
			t.Errorf("%v, %v", list, err)
		}
	}
	if list, err := servedBy(t.Context(), client, []netip.AddrPort{off, old}); err == nil || len(list) > 0 || !strings.Contains(err.Error(), "404") || fault.Hint(err) == "" {
		t.Errorf("%v, %v", list, err)
	}
}
