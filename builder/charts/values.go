package charts

import (
	"encoding/json"
	"fmt"
	"os"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// values merges the user's values as Helm does.
func (want Chart) values() (map[string]any, error) {
	merged := map[string]any{}
	for _, name := range want.ValueFiles {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.Usage, "check the path of the file with values")
		}
		values, err := decodeValues(content)
		if err != nil {
			return nil, fault.New(fault.Usage, "values %q: %w", name, err).Hint("correct the file: it must be YAML, with each key once")
		}
		merged = loader.MergeMaps(merged, values)
	}
	for _, s := range want.Set {
		if err := strvals.ParseInto(s, merged); err != nil {
			return nil, fault.New(fault.Usage, "value %q: %w", s, err).Hint("write key=value, or key.key=value")
		}
	}
	return merged, nil
}

// decodeValues merges the documents of a file as Helm does. What Helm would ignore is an error.
func decodeValues(content []byte) (map[string]any, error) {
	list, errs := documents.Read(content)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	merged := map[string]any{}
	for _, d := range list {
		var values map[string]any
		if err := json.Unmarshal(d.JSON, &values); err != nil {
			return nil, fmt.Errorf("line %d: %w", d.Line, err)
		}
		merged = loader.MergeMaps(merged, values)
	}
	return merged, nil
}
