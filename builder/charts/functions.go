package charts

import (
	"fmt"
	"maps"
	"slices"
	"text/template"
	"time"
)

// functions returns template functions that make a rendering depend on its inputs only. pass
// is the number of the rendering: each has another time and another randInt, so that a
// chart that uses them makes another result. looked is called for each lookup.
func functions(pass int, looked func(string)) template.FuncMap {
	// Two years, two months, two days and more: no part of the date is the same.
	now := time.Date(2024+2*pass, time.Month(1+2*pass), 3+2*pass, 4+2*pass, 5+2*pass, 6+2*pass, 7+2*pass, time.UTC)
	return template.FuncMap{
		"now": func() time.Time { return now },
		"randInt": func(from, to int) int {
			if to <= from {
				return from
			}
			return from + pass%(to-from)
		},
		"keys": func(maps ...map[string]any) []string {
			var all []string
			for _, m := range maps {
				all = append(all, sortedKeys(m)...)
			}
			return all
		},
		"values": func(m map[string]any) []any {
			var all []any
			for _, k := range sortedKeys(m) {
				all = append(all, m[k])
			}
			return all
		},
		"lookup": func(apiVersion, kind, namespace, name string) (map[string]any, error) {
			what := kind
			if name != "" {
				what += " " + name
				if namespace != "" {
					what = fmt.Sprintf("%s %s/%s", kind, namespace, name)
				}
			}
			looked(what)
			return map[string]any{}, nil
		},
	}
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
