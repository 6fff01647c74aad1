package config

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestNextKeepsFields: the next reconfiguration counts, and keeps all other fields of the last one, also fields that are added later.
func TestNextKeepsFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.Make[Reconfiguration]().Draw(t, "last")
		next := last.Next(&Cluster{}, &Cluster{}, rapid.Bool().Draw(t, "workers"))
		next.Number, next.Workers, next.As, next.Removed = last.Number, last.Workers, last.As, last.Removed
		if !reflect.DeepEqual(next, last) {
			t.Errorf("%+v becomes %+v", last, next)
		}
	})
}
