package charts

import (
	"bytes"
	"os"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"

	"airlift/fault"
)

// values merges the user's values as Helm does.
func (want Chart) values() (map[string]any, error) {
	merged := map[string]any{}
	for _, name := range want.ValueFiles {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.Usage, "check the path of the file with values")
		}
		values, err := loader.LoadValues(bytes.NewReader(content))
		if err != nil {
			return nil, fault.New(fault.Usage, "correct the file: it must be YAML", "values %q: %w", name, err)
		}
		merged = loader.MergeMaps(merged, values)
	}
	merged = loader.MergeMaps(merged, want.Values)
	for _, s := range want.Set {
		if err := strvals.ParseInto(s, merged); err != nil {
			return nil, fault.New(fault.Usage, "write key=value, or key.key=value", "value %q: %w", s, err)
		}
	}
	return merged, nil
}
