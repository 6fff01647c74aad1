package kubelet

import (
	_ "embed"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"airlift/fault"
)

//go:embed facts/facts.json
var factsFile []byte

// gateFact is a feature gate of a kubelet.
type gateFact struct {
	Stage   string   `json:"stage"` // alpha, beta, ga, deprecated
	Default bool     `json:"default"`
	Locked  bool     `json:"locked"` // cannot be changed
	Needs   []string `json:"needs"`  // gates that must be on if this one is
}

// flagFact is a flag of a kubelet.
type flagFact struct {
	Type       string `json:"type"`
	Field      string `json:"field"` // the field it overrides, by its path
	Deprecated string `json:"deprecated"`
}

// span is a fact and the minor versions for which it is true.
type span[T any] struct {
	From int `json:"from"`
	To   int `json:"to"`
	Is   T   `json:"is"`
}

type history[T any] map[string][]span[T]

type factBook struct {
	Gates  history[gateFact] `json:"gates"`
	Flags  history[flagFact] `json:"flags"`
	Fields history[struct{}] `json:"fields"`
}

var facts = sync.OnceValue(func() *factBook {
	b := new(factBook)
	if err := json.Unmarshal(factsFile, b); err != nil {
		panic(err) // the file is embedded
	}
	return b
})

// at returns the fact for a name in a minor version.
func (h history[T]) at(name string, minor int) (T, bool) {
	for _, s := range h[name] {
		if s.From <= minor && minor <= s.To {
			return s.Is, true
		}
	}
	var none T
	return none, false
}

// hint helps with an unknown name: it exists in another minor version, or is
// similar to a known one.
func (h history[T]) hint(name string, minor int) string {
	if spans := h[name]; len(spans) > 0 {
		if spans[0].From > minor {
			return "it was added in v1." + itoa(spans[0].From)
		}
		return "v1." + itoa(spans[len(spans)-1].To) + " was the last version with it"
	}
	var here []string
	for _, known := range slices.Sorted(maps.Keys(h)) {
		if _, ok := h.at(known, minor); ok {
			here = append(here, known)
		}
	}
	if best := fault.Nearest(name, here); best != "" {
		return "did you mean " + best + "?"
	}
	return ""
}
