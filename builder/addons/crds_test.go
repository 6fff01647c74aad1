package addons_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"airlift/builder/manifests"
)

var update = flag.Bool("update", false, "rewrite crds/gateway-api.yaml")

// gatewayAPI is the version of the Gateway API that Traefik's documentation names.
const gatewayAPI = "v1.6.1"

const notice = `# The Gateway API ` + gatewayAPI + `, standard channel, without the descriptions of fields.
# Source: https://github.com/kubernetes-sigs/gateway-api, config/crd/standard. Apache License 2.0.
`

// TestGatewayAPI compares the definitions, and the policy that refuses experimental and older ones,
// with those in the module of the Gateway API.
func TestGatewayAPI(t *testing.T) {
	list := moduleObjects(t, "sigs.k8s.io/gateway-api@"+gatewayAPI, "config/crd/standard")
	if len(list) != 12 {
		t.Fatalf("%d objects", len(list))
	}
	for _, o := range list {
		withoutDescriptions(o.Content, false)
	}
	want, err := manifests.Encode(list)
	if err != nil {
		t.Fatal(err)
	}
	want = append([]byte(notice), want...)
	const name = "crds/gateway-api.yaml"
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from the module (%v): run this test with -update", name, err)
	}
}

// withoutDescriptions removes the descriptions from a schema. The keys of an object named properties
// are names of fields, and one of them may be description.
func withoutDescriptions(value any, names bool) {
	switch value := value.(type) {
	case map[string]any:
		if !names {
			delete(value, "description")
		}
		for key, v := range value {
			withoutDescriptions(v, key == "properties" && !names)
		}
	case []any:
		for _, v := range value {
			withoutDescriptions(v, false)
		}
	}
}
