package registrychange

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// A server with a certificate for the address, but without the name of an API server, is no control plane.
func TestProbeRequiresAnAPIServer(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{}
	s.StartTLS()
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	if list := probe(t.Context(), ca, []netip.AddrPort{at}); len(list) != 1 || list[0].Ready || !strings.Contains(list[0].Reason, "kubernetes.default.svc") {
		t.Errorf("%+v", list)
	}
}
