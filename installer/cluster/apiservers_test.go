package cluster

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"airlift/scripts/fixtures/testcluster"
)

func TestAddressesOfAPIServers(t *testing.T) {
	slice := func(ports []discoveryv1.EndpointPort, addresses ...string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{Ports: ports, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}}}
	}
	port := func(name string, n int32) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: ptr.To(name), Port: ptr.To(n)}
	}
	for name, c := range map[string]struct {
		slice discoveryv1.EndpointSlice
		want  []string
	}{
		"IPv4":         {slice([]discoveryv1.EndpointPort{port("https", 6443)}, "192.0.2.1"), []string{"192.0.2.1:6443"}},
		"IPv6":         {slice([]discoveryv1.EndpointPort{port("https", 443)}, "2001:db8::1"), []string{"[2001:db8::1]:443"}},
		"other name":   {slice([]discoveryv1.EndpointPort{port("", 6443)}, "192.0.2.1"), []string{"192.0.2.1:6443"}},
		"second port":  {slice([]discoveryv1.EndpointPort{port("other", 1), port("https", 6443)}, "192.0.2.1"), []string{"192.0.2.1:6443"}},
		"no port":      {slice([]discoveryv1.EndpointPort{{}}, "192.0.2.1"), nil},
		"host name":    {slice([]discoveryv1.EndpointPort{port("https", 6443)}, "example.com"), nil},
		"no addresses": {slice([]discoveryv1.EndpointPort{port("https", 6443)}), nil},
	} {
		var got []string
		for _, a := range addressesOf(c.slice) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A host that joins cannot use the balancer of another one.
func TestReachable(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"192.0.2.2"}}},
	}
	api, dynamic, _ := testcluster.Fake(slice)
	c := &Client{API: api, Dynamic: dynamic}
	for server, want := range map[string]string{
		"https://10.77.0.100:6443":      "10.77.0.100:6443",
		"https://k8s.site.example:6443": "k8s.site.example:6443",
		"https://[fd00::100]:6443":      "[fd00::100]:6443",
		"https://127.0.0.1:6443":        "127.0.0.1:6443", // a tunnel
		"https://127.0.0.1:7443":        "192.0.2.1:6443",
		"https://[::1]:7443":            "192.0.2.1:6443",
	} {
		if got, err := c.Reachable(t.Context(), server); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", server, got, err, want)
		}
	}
}

// An API server that fails is not asked without a pause, and an empty list is not passed on.
func TestFollowingWaitsAfterFailures(t *testing.T) {
	requests := make(chan struct{}, 1000)
	answers := make(chan string, 2)
	answers <- "" // the first request fails
	answers <- `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- struct{}{}
		select {
		case body := <-answers:
			if body == "" {
				http.Error(w, "no", http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(body))
		default:
			http.Error(w, "no", http.StatusBadRequest)
		}
	}))
	defer s.Close()
	kubeconfig := filepath.Join(t.TempDir(), "conf")
	data := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + s.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	failures := 0
	FollowAPIServers(ctx, kubeconfig, func(list []netip.AddrPort) { t.Errorf("passed %v", list) }, func(error) { failures++ })
	// At most one round a second, each a list and a watch.
	if n := len(requests); failures < 1 || n > 6 {
		t.Errorf("%d failures, %d requests in 3 s", failures, n)
	}
}
