package redact

import (
	"strings"
	"testing"

	"airlift/installer/config"
)

// TestOwnObjects: what Airlift stores in ConfigMaps has no secret, and a plan shows what changes in it.
func TestOwnObjects(t *testing.T) {
	for _, o := range []interface{ Encode() ([]byte, error) }{
		config.Reconfiguration{Number: 3, Workers: 2, Removed: config.Names{APIServer: []string{"old.example"}}},
		config.Endpoint{VIPs: []string{"10.0.0.100"}, Balancer: true, Change: &config.EndpointChange{Number: 1, Server: "https://10.0.0.100:6443"}},
	} {
		data, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if out := string(Documents(data)); strings.Contains(out, Marker) {
			t.Errorf("%s", out)
		}
		inMap := "apiVersion: v1\nkind: ConfigMap\ndata:\n  x.yaml: |\n    " + strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "\n    ") + "\n    password: p4ss\n"
		if out := string(Documents([]byte(inMap))); strings.Count(out, Marker) != 1 || strings.Contains(out, "p4ss") {
			t.Errorf("%s", out)
		}
	}
}
