package addons_test

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"testing"

	"airlift/bundle/manifests"
)

var update = flag.Bool("update", false, "rewrite crds/gateway-api.yaml")

// gatewayAPI is the version of the Gateway API that Traefik's documentation names.
const gatewayAPI = "v1.6.1"

const noticeOfCRDs = `# The CustomResourceDefinitions of the Gateway API ` + gatewayAPI + `, standard channel, without descriptions.
# Source: https://github.com/kubernetes-sigs/gateway-api, config/crd/standard. Apache License 2.0.
`

// TestGatewayAPI compares the definitions with those in the module of the Gateway API. The policy
// safe-upgrades is left out: Kubernetes has this kind of policy since v1.30.
func TestGatewayAPI(t *testing.T) {
	list := moduleObjects(t, "sigs.k8s.io/gateway-api@"+gatewayAPI, "config/crd/standard")
	list = slices.DeleteFunc(list, func(o *manifests.Object) bool { return o.Kind != "CustomResourceDefinition" })
	if len(list) < 8 {
		t.Fatalf("%d definitions", len(list))
	}
	for _, o := range list {
		withoutDescriptions(o.Content, false)
	}
	want, err := manifests.Encode(list)
	if err != nil {
		t.Fatal(err)
	}
	want = append([]byte(noticeOfCRDs), want...)
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
