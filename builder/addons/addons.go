// Package addons has the Kubernetes objects of the optional add-ons in the catalog. They are
// Airlift's own text, with the permissions, flags and paths that each project documents.
package addons

import (
	"bytes"
	"embed"
	"fmt"

	"airlift/images/release"
)

//go:embed *.yaml
var files embed.FS

// gatewayAPI is the Gateway API's standard channel, in the version that Traefik's documentation names:
// CustomResourceDefinitions without the descriptions of fields, and the policy that protects them. A
// test compares them with the module sigs.k8s.io/gateway-api, and writes the file with -update.
//
//go:embed crds/gateway-api.yaml
var gatewayAPI []byte

// imageField is the placeholder for the add-on's image in the files.
const imageField = "ADD-ON-IMAGE"

// Objects returns the objects of an add-on as YAML.
func Objects(a release.AddOn) ([]byte, error) {
	text, err := files.ReadFile(a.Name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the objects of the add-on %s: %w", a.Name, err)
	}
	if a.Name == release.Ingress {
		text = append(bytes.Clone(gatewayAPI), text...)
	}
	return bytes.ReplaceAll(text, []byte(imageField), []byte(a.Image)), nil
}
