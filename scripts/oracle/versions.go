package oracle

import (
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// toV1Beta4 converts two bodies from v1beta3 to v1beta4: flags become lists, and the
// control plane's timeout becomes one of the timeouts.
func toV1Beta4(first, cluster map[string]any) {
	flagsToLists(first)
	flagsToLists(cluster)
	server, _ := cluster["apiServer"].(map[string]any)
	if timeout, ok := server["timeoutForControlPlane"]; ok {
		delete(server, "timeoutForControlPlane")
		first["timeouts"] = map[string]any{"controlPlaneComponentHealthCheck": timeout}
	}
}

func flagsToLists(doc map[string]any) {
	for key, value := range doc {
		inner, ok := value.(map[string]any)
		switch {
		case !ok:
		case key == "extraArgs" || key == "kubeletExtraArgs":
			var list []any
			for _, name := range slices.Sorted(maps.Keys(inner)) {
				list = append(list, map[string]any{"name": name, "value": inner[name]})
			}
			doc[key] = list
		default:
			flagsToLists(inner)
		}
	}
}

func decodeBody(body string) map[string]any {
	doc := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(body), &doc); err != nil {
		panic(err)
	}
	return doc
}

func encodeBody(doc map[string]any) string {
	data, err := yaml.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return string(data)
}
