package manifests

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A path leads to a value in an object. Its elements are keys (string) and indexes (int).
type path []any

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// String returns the path as kubectl and the API write it:
// spec.containers[0].image, data["config.yaml"].
func (p path) String() string {
	var b strings.Builder
	for _, e := range p {
		switch e := e.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", e)
		case string:
			switch {
			case !plainKey.MatchString(e):
				fmt.Fprintf(&b, "[%q]", e)
			case b.Len() > 0:
				b.WriteString("." + e)
			default:
				b.WriteString(e)
			}
		}
	}
	return b.String()
}

// with returns p and more elements, in memory of its own.
func (p path) with(more ...any) path { return append(slices.Clone(p), more...) }

// key returns the last element that is a key.
func (p path) key() string {
	for i := len(p) - 1; i >= 0; i-- {
		if s, ok := p[i].(string); ok {
			return s
		}
	}
	return ""
}

func (p path) endsInKey() bool { _, ok := p[len(p)-1].(string); return ok }

// walk calls visit for value and everything below it, keys sorted. Where visit returns false,
// it does not go deeper.
func walk(p path, value any, visit func(path, any) bool) {
	if !visit(p, value) {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			walk(p.with(k), v[k], visit)
		}
	case []any:
		for i, e := range v {
			walk(p.with(i), e, visit)
		}
	}
}
