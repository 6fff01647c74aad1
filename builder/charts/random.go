package charts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"airlift/builder/manifests"
	"airlift/internal/fault"
)

// sameObjects returns an error that names what differs between two renderings.
func sameObjects(a, b *Rendering) error {
	chart := a.Name + " " + a.Version
	if len(a.Objects) != len(b.Objects) {
		return random(chart, "the list of objects", "")
	}
	type change struct {
		object *manifests.Object
		field  string
	}
	var changes []change
	for i, o := range a.Objects {
		if o.String() != b.Objects[i].String() {
			return random(chart, "the name of "+o.String(), o.File)
		}
		if field := manifests.Difference(o, b.Objects[i]); field != "" {
			changes = append(changes, change{o, field})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	// A Secret is the cause. A checksum of it in a Deployment is the consequence.
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(rank(a.object), rank(b.object)) })
	var list []string
	for _, c := range changes[:min(len(changes), 5)] {
		list = append(list, fmt.Sprintf("%s of %s", c.field, c.object))
	}
	if more := len(changes) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return random(chart, strings.Join(list, ", "), changes[0].object.File)
}

func rank(o *manifests.Object) int {
	switch o.Kind {
	case "Secret":
		return 0
	case "ConfigMap":
		return 1
	}
	return 2
}

func random(chart, what, template string) error {
	hint := `set the values from which the chart takes it (a password, a certificate, an existing Secret): "helm show values CHART" prints them`
	if template != "" {
		hint += "; the template is " + template
	}
	return fault.New(fault.Usage, "chart %s generates a new value each time it is rendered: %s", chart, what).Hint(hint)
}
