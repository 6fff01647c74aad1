package render

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime"
)

// Manifest returns a file for `kubectl apply -f` with one document for each
// object, in order.
func Manifest(objects ...runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objects {
		data, err := YAML(o)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(data)
	}
	return out.Bytes(), nil
}
