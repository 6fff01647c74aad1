package initcluster

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// newCA returns the certificate of a new CA.
func newCA(t *testing.T) []byte {
	t.Helper()
	made, err := pki.Ensure(testhost.Config(nil), fstest.MapFS{}, time.Now(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Files {
		if f.Path == config.CACertPath {
			return f.Data
		}
	}
	t.Fatalf("no CA in %+v", made)
	return nil
}

// Nodes that join trust only the CAs whose hashes they get. The join command
// must therefore have the hash of each CA.
func TestJoinCommandHasTheHashOfEachCA(t *testing.T) {
	ca, next := newCA(t), newCA(t)
	var out bytes.Buffer
	i := initOn(t, func(c *config.Config) { c.ControlPlaneEndpoint = "k8s.site.example:6443" })
	i.credentials.token, i.Console.Out = "abcdef.0123456789abcdef", &out
	if err := i.Write(pki.File{Path: config.CACertPath, Data: append(bytes.Clone(ca), next...), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := i.credentials.show(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.Console.Close()
	for _, data := range [][]byte{ca, next} {
		hashes, err := pki.CAHashes(data)
		if err != nil || !strings.Contains(out.String(), "--discovery-token-ca-cert-hash "+hashes[0]) {
			t.Errorf("%v (%v) is not in:\n%s", hashes, err, &out)
		}
	}
}

// A host that joins has no balancer yet, so the join command has the address of an API server.
func TestJoinCommandOfABalancer(t *testing.T) {
	var out bytes.Buffer
	i := initOn(t, func(c *config.Config) { c.Endpoint.Balancer, c.ControlPlaneEndpoint = true, c.BalancerAddress() })
	if err := i.Write(pki.File{Path: config.CACertPath, Data: newCA(t), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	i.credentials.api.Client, _ = testclient.Fake(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"},
		Ports:      []discoveryv1.EndpointPort{{Port: new(int32(6443))}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	})
	i.credentials.token, i.Console.Out = "abcdef.0123456789abcdef", &out
	if err := i.credentials.show(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.Console.Close()
	if !strings.Contains(out.String(), "./install join 192.0.2.1:6443 --token") {
		t.Error(out.String())
	}
}

// Nodes join without the bundle's pod network if init did not install it.
func TestJoinCommandHasTheOtherPodNetwork(t *testing.T) {
	for _, tt := range []struct {
		bundles, chosen string
		want            bool
	}{{"flannel", "flannel", false}, {"flannel", "none", true}, {"none", "none", false}} {
		var out bytes.Buffer
		i := initOn(t, func(c *config.Config) { c.ControlPlaneEndpoint, c.CNI = "k8s.site.example:6443", tt.chosen })
		i.node.Plan.Bundle.Manifest = &bundle.Manifest{CNI: tt.bundles}
		if err := i.Write(pki.File{Path: config.CACertPath, Data: newCA(t), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		i.credentials.token, i.Console.Out = "abcdef.0123456789abcdef", &out
		if err := i.credentials.show(t.Context()); err != nil {
			t.Fatal(err)
		}
		i.Console.Close()
		if strings.Contains(out.String(), " --cni none") != tt.want {
			t.Errorf("%+v:\n%s", tt, &out)
		}
	}
}
