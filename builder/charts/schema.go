package charts

import (
	"encoding/json"
	"fmt"
	"strings"

	helm "helm.sh/helm/v4/pkg/chart/v2"
)

// withoutRemoteSchemas removes the schemas of values for which Helm would download a part,
// past the mirrors, and returns notes about them.
func withoutRemoteSchemas(chart *helm.Chart) (notes []string) {
	var schema any
	if len(chart.Schema) > 0 && json.Unmarshal(chart.Schema, &schema) == nil {
		if ref := remoteReference(schema); ref != "" {
			chart.Schema = nil
			notes = append(notes, fmt.Sprintf("chart %s: the schema of its values refers to %s and was not used", described(chart), ref))
		}
	}
	for _, d := range chart.Dependencies() {
		notes = append(notes, withoutRemoteSchemas(d)...)
	}
	return notes
}

// remoteReference returns a reference in a schema to another document, or "".
func remoteReference(schema any) string {
	switch v := schema.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			s, ok := v[k].(string)
			if ok && (k == "$ref" || k == "$dynamicRef" || k == "$schema") && !strings.HasPrefix(s, "#") &&
				!strings.HasPrefix(s, "http://json-schema.org/") && !strings.HasPrefix(s, "https://json-schema.org/") {
				return s
			}
			if ref := remoteReference(v[k]); ref != "" {
				return ref
			}
		}
	case []any:
		for _, e := range v {
			if ref := remoteReference(e); ref != "" {
				return ref
			}
		}
	}
	return ""
}
