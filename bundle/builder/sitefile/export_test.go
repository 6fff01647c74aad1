package sitefile

import "slices"

// Fields lists the names of the fields of all mappings.
func Fields() (names []string) {
	for _, t := range types {
		names = append(names, fieldsOf(t)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
