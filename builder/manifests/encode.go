package manifests

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/yaml"

	"airlift/bundle"
	"airlift/internal/fault"
)

// Encode returns the objects as documents of YAML, in their order, with sorted keys. The same
// objects give the same bytes. YAML 1.1 readers, such as the API server, and YAML 1.2 readers read
// the same values.
func Encode(objects []*Object) ([]byte, error) {
	var b bytes.Buffer
	for _, o := range objects {
		text, err := yaml.Marshal(o.Content)
		if err != nil {
			return nil, fmt.Errorf("%s: encoding %s: %w", o.Position(), o, err)
		}
		b.WriteString("---\n")
		b.Write(text)
		if b.Len() > bundle.MaxManifest {
			return nil, fault.New(fault.Usage, "%s: with %s the manifest has more than the %d bytes allowed", o.Position(), o, bundle.MaxManifest).
				Hint("divide the objects into two manifests")
		}
	}
	return b.Bytes(), nil
}
